"""What the checker of Metal kernels must not take for a fault, and what stands close to it and is one."""

from __future__ import annotations

import subprocess
import threading
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch

from anymps.metal import ShaderFault, ShaderFaultWarning, take_shader_faults
from anymps.metal.checking._lines import _places_of
from metal_shaders import HEAD
from shader_faults import compile_checked

pytestmark = pytest.mark.usefixtures("virtual_device")

KERNELS = (
    HEAD
    + """
kernel void neighbours(device half* x, device uchar* y, uint i [[thread_index_in_threadgroup]]) {
  x[i] = half(i);
  y[i] = uchar(i);
}
kernel void overlapping(device uchar* y, uint i [[thread_index_in_threadgroup]]) {
  if (i == 0) *(device uint*)y = 7;
  else y[i] = uchar(i);
}
kernel void vectors(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float3 v[64];
  v[i] = float3(i, 1, 2);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float3 other = v[63 - i];
  x[i] = other.x + other.z;
}
kernel void sorts(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint size = 2; size <= 64; size *= 2) {
    for (uint step = size / 2; step > 0; step /= 2) {
      uint other = i ^ step;
      if (other > i && (a[i] > a[other]) == ((i & size) == 0)) {
        float held = a[i];
        a[i] = a[other];
        a[other] = held;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  x[i] = a[i];
}
kernel void by_simd_groups(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[i] = x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = a[i ^ 1];
}
kernel void across_simd_groups(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[i] = x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = a[i ^ 32];
}
kernel void counts(device atomic_int* out, uint i [[thread_index_in_threadgroup]]) {
  threadgroup atomic_int sum;
  if (i == 0) atomic_store_explicit(&sum, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&sum, int(i), memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) atomic_fetch_add_explicit(out, atomic_load_explicit(&sum, memory_order_relaxed), memory_order_relaxed);
}
kernel void counts_plainly(device int* out, uint i [[thread_index_in_threadgroup]]) {
  atomic_fetch_add_explicit((device atomic_int*)out, 1, memory_order_relaxed);
  if (i == 5) out[0] = 0;
}
#define SUM(NAME, BEGIN, END) \
  kernel void NAME(device int* out, uint i [[thread_index_in_threadgroup]]) { \
    threadgroup atomic_int sum; \
    threadgroup int* plain = (threadgroup int*)&sum; \
    BEGIN; \
    atomic_fetch_add_explicit(&sum, 1, memory_order_relaxed); \
    END; \
  }
#define WAIT threadgroup_barrier(mem_flags::mem_threadgroup)
#define STORE if (i == 0) atomic_store_explicit(&sum, 0, memory_order_relaxed)
#define LOAD atomic_load_explicit(&sum, memory_order_relaxed)
SUM(sums, STORE; WAIT, WAIT; out[i] = LOAD + *plain)
SUM(read_by_the_last, STORE; WAIT, if (i == 63) out[i] = *plain)
SUM(read_by_the_first, STORE; WAIT, if (i == 0) out[i] = *plain)
SUM(set_plainly, if (i == 0) *plain = 0, WAIT; out[i] = LOAD)
SUM(set_late, STORE, WAIT; out[i] = LOAD)
SUM(loaded_early, STORE; WAIT, out[i] = LOAD)
kernel void set_late_float(device atomic_float* sum, uint i [[thread_index_in_threadgroup]]) {
  if (i == 0) atomic_store_explicit(sum, 0, memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 1, memory_order_relaxed);
}
kernel void loaded_early_float(device atomic_float* sum, uint i [[thread_index_in_threadgroup]]) {
  atomic_fetch_add_explicit(sum, 1, memory_order_relaxed);
  float all = i == 63 ? atomic_load_explicit(sum, memory_order_relaxed) : 0;
  if (all > 63) atomic_store_explicit(sum + 1, all, memory_order_relaxed);
}
kernel void unordered_on_purpose(device atomic_int* flag, device atomic_float* top, device float* x,
                                 uint i [[thread_index_in_threadgroup]]) {
  if (atomic_load_explicit(flag, memory_order_relaxed) == 0) atomic_store_explicit(flag, 1, memory_order_relaxed);
  atomic_fetch_or_explicit(flag, 2, memory_order_relaxed);
  if (atomic_exchange_explicit(flag + 1, 1, memory_order_relaxed) == 0)
    atomic_store_explicit(flag + 1, 0, memory_order_relaxed);
  float held = atomic_load_explicit(top, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(top, &held, max(held, x[i]), memory_order_relaxed,
                                                memory_order_relaxed)) {}
}
constant float TABLE[4] = {1, 2, 3, 4};
kernel void tables(device float* x, constant float* weights, uint i [[thread_position_in_grid]]) {
  float mine[4];
  for (uint k = 0; k < 4; ++k) mine[k] = TABLE[k] * weights[k];
  x[i] = mine[i % 4];
}
kernel void leaves_evenly(device float* x, uint i [[thread_index_in_threadgroup]]) {
  for (uint k = 0; k < 4; ++k) {
    threadgroup_barrier(mem_flags::mem_device);
    if (k == 2) return;
  }
  x[i] = 0;
}
"""
)
GROUP = {"threads": 64, "group_size": 64}


@pytest.fixture(scope="module")
def kernels() -> Any:
    """The kernels above in their checked form."""
    return compile_checked(KERNELS)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Without warnings; faults that no test takes are not the next one's."""
    take_shader_faults()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShaderFaultWarning)
        yield
    take_shader_faults()


def _kinds(faults: list[ShaderFault]) -> list[str]:
    return [fault.kind for fault in faults]


def test_small_types_lie_beside_each_other(kernels: Any) -> None:
    """Two threads may write the two halves of a word, but not a byte of it and the whole."""
    x, y = torch.zeros(64, dtype=torch.half, device="mps"), torch.zeros(64, dtype=torch.uint8, device="mps")
    kernels.neighbours(x, y, **GROUP)
    assert take_shader_faults() == []
    assert (x.tolist(), y.tolist()) == (list(range(64)), list(range(64)))
    kernels.overlapping(y, **GROUP)
    (fault,) = take_shader_faults()
    assert fault.what.endswith("1 byte at byte 1 (first in thread 1, group 0; 3 times in the launch).")


def test_a_bitonic_sort(kernels: Any) -> None:
    """Barriers in loops, reached as often by all."""
    x = torch.randn(64, device="mps")
    expected = x.cpu().sort()[0].tolist()
    kernels.sorts(x, **GROUP)
    assert (take_shader_faults(), x.tolist()) == ([], expected)


def test_a_barrier_of_a_simd_group_counts_within_it(kernels: Any) -> None:
    """And not between two of them."""
    x = torch.arange(64.0, device="mps")
    kernels.by_simd_groups(x, **GROUP)
    assert (take_shader_faults(), x[:4].tolist()) == ([], [1, 0, 3, 2])
    kernels.across_simd_groups(x, **GROUP)
    # Which half runs first decides whether a write or a read comes second, and whether the memory was written.
    assert set(_kinds(take_shader_faults())) == {"uninitialised", "race"}


def test_atomics_do_not_race_with_each_other(kernels: Any) -> None:
    """With a plain write they do."""
    out = torch.zeros(1, dtype=torch.int32, device="mps")
    kernels.counts(out, threads=128, group_size=64)
    assert (take_shader_faults(), out.item()) == ([], 2 * sum(range(64)))
    kernels.counts_plainly(out, **GROUP)
    assert set(_kinds(take_shader_faults())) == {"race"}


@pytest.mark.parametrize(
    ("name", "kind", "serious"),
    [
        ("read_by_the_last", "race", True),
        ("read_by_the_first", "race", True),
        ("set_plainly", "race", True),
        ("set_late", "lost_add", True),
        ("set_late_float", "lost_add", True),
        ("loaded_early", "partial_sum", False),
        ("loaded_early_float", "partial_sum", False),
    ],
)
def test_a_sum_by_atomics_needs_barriers(kernels: Any, name: str, kind: str, serious: bool) -> None:
    """After its first value is stored and before it is read, whichever thread comes last."""
    out = torch.zeros(64, dtype=torch.float32 if name.endswith("float") else torch.int32, device="mps")
    getattr(kernels, name)(out, **GROUP)
    assert {(fault.kind, fault.serious) for fault in take_shader_faults()} == {(kind, serious)}


def test_what_a_sum_without_barriers_is_told(kernels: Any) -> None:
    """Both lines, and what goes wrong."""
    out = torch.zeros(64, dtype=torch.int32, device="mps")
    lines = {name: KERNELS[: KERNELS.index(f"SUM({name},")].count("\n") + 1 for name in ("set_late", "loaded_early")}
    kernels.set_late(out, **GROUP)
    kernels.loaded_early(out, **GROUP)
    late, early = (fault.what for fault in take_shader_faults())
    text = KERNELS.splitlines()[lines["set_late"] - 1]
    assert late == (
        f"The Metal kernel `set_late` atomically adds to threadgroup memory at line {lines['set_late']}, `{text}`, "
        "which thread 0 has stored to there, too, with no barrier in between: an addition before the store is lost, 4 "
        "bytes at byte 0 (first in thread 1, group 0; 63 times in the launch)."
    )
    text = KERNELS.splitlines()[lines["loaded_early"] - 1]
    assert early.startswith(
        f"The Metal kernel `loaded_early` atomically adds to threadgroup memory at line {lines['loaded_early']}, "
        f"`{text}`, which thread 0 has loaded from there, too, with no barrier in between: the value loaded lacks what "
        "is added later, 4 bytes at byte 0 (first in thread 1, group 0; "
    )


def test_atomics_whose_order_may_be_open(kernels: Any) -> None:
    """Sums with barriers, flags, a lock, and a maximum by a loop of the program's own."""
    flags, out = torch.zeros(2, dtype=torch.int32, device="mps"), torch.zeros(64, dtype=torch.int32, device="mps")
    top = torch.zeros(1, device="mps")
    kernels.sums(out, **GROUP)
    kernels.unordered_on_purpose(flags, top, torch.arange(64.0, device="mps"), **GROUP)
    assert (take_shader_faults(), out.tolist(), top.item(), flags.tolist()) == ([], [128] * 64, 63, [3, 0])


def test_tables_and_arrays_of_a_thread(kernels: Any) -> None:
    """Constants of the source, and a list of numbers, which is as long as it was given."""
    x = torch.zeros(8, device="mps")
    kernels.tables(x, [1.0, 10.0, 100.0, 1000.0])
    assert (take_shader_faults(), x.tolist()) == ([], [1, 20, 300, 4000] * 2)
    kernels.tables(x, [1.0, 10.0, 100.0])
    (fault,) = take_shader_faults()
    assert "reads past the end of argument 1 at line" in fault.what
    assert "4 bytes at byte 12 of 12" in fault.what


def test_all_threads_leave_at_the_same_place(kernels: Any) -> None:
    """No barrier lacks anybody."""
    kernels.leaves_evenly(torch.zeros(64, device="mps"), **GROUP)
    assert take_shader_faults() == []


def test_two_threads_of_the_program_launch_at_once(kernels: Any) -> None:
    """One after the other, each with its own faults; nobody writes the last four bytes of a vector of three."""
    tensors = [torch.zeros(64, device="mps") for _ in range(4)]

    def launch(x: torch.Tensor) -> None:
        for _ in range(20):
            kernels.vectors(x, **GROUP)

    threads = [threading.Thread(target=launch, args=(x,)) for x in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert take_shader_faults() == []
    assert all(x.tolist() == [65.0 - i for i in range(64)] for x in tensors)


def test_without_addr2line_the_line_is_left_out(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is said."""
    monkeypatch.setattr("anymps.metal.checking._lines.shutil.which", lambda name: None)
    kernels.tables(torch.zeros(1, device="mps"), [1.0])
    (fault,) = take_shader_faults()
    assert fault.what == (
        "The Metal kernel `tables` reads past the end of argument 1: 4 bytes at byte 4 of 4 (first in thread 0, "
        "group 0; 3 times in the launch)."
    )


def test_addr2line_is_asked_once_for_the_same_launch(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each launch would take longer than most launches; the words stay."""
    asked = mock.Mock(side_effect=subprocess.run)
    monkeypatch.setattr("anymps.metal.checking._lines.subprocess.run", asked)
    _places_of.cache_clear()
    said = []
    for _ in range(3):
        kernels.tables(torch.zeros(1, device="mps"), [1.0])
        said += [fault.what for fault in take_shader_faults()]
    assert (len(said), len(set(said)), asked.call_count) == (3, 1, 1)
    assert " at line " in said[0]


def test_helpers_of_torch_are_clean() -> None:
    """Reductions of `c10/metal` over a whole group; a fault in one is told at the line that called it."""
    library = compile_checked(
        HEAD
        + """#include <c10/metal/reduction_utils.h>
kernel void sums(device float* x, constant uint& size, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  x[i] = c10::metal::threadgroup_sum(shared, x[i], i, size);
}
"""
    )
    x = torch.ones(128, device="mps")
    library.sums(x, 128, threads=128, group_size=128)
    assert (take_shader_faults(), x.tolist()) == ([], [128.0] * 128)
