"""Launches from several threads of Python at once, beside faults, forks and tensors that are freed."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable

import pytest
import torch

from metal_shaders import HEAD, library
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")

KERNELS = (
    HEAD
    + """
kernel void add(device float* out, device const float* x, constant long& n, uint i [[thread_position_in_grid]]) {
  out[i] = x[i] + n;
}
kernel void rows(device float* out, device const float* x, uint i [[thread_position_in_grid]],
                 uint l [[thread_index_in_threadgroup]]) {
  threadgroup float t[64];
  t[l] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = t[63 - l];
}
kernel void lanes(device float* out, device const float* x, constant long& n, uint i [[thread_position_in_grid]]) {
  float sum = x[i];
  for (uint k = 0; k < n % 3 + i / 65536; ++k) sum = simd_shuffle_xor(sum, 1);
  out[i] = sum;
}
kernel void far(device float* out, constant long& n, uint i [[thread_position_in_grid]]) { out[i + n] = 1; }
"""
)
FORKED = "anymps: the mps device was used before this process was forked"
SIZE, THREADS, TURNS = 1 << 16, 4, 6


def _together(work: Callable[[int], None]) -> None:
    """Runs work(number) on several threads, and raises what one of them raised."""
    failures: list[BaseException] = []
    gate = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            gate.wait()
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _launches(number: int) -> None:
    kernels = library(KERNELS)
    x = torch.arange(float(SIZE), device="mps")
    cpu = torch.arange(float(SIZE))
    for turn in range(TURNS):
        n = 3 * (number + turn) + 1
        out, back, swapped = (torch.zeros(SIZE, device="mps") for _ in range(3))
        kernels.add(out, x, n)
        kernels.rows(back, out, threads=SIZE, group_size=64)
        kernels.lanes(swapped, out, n, threads=SIZE, group_size=64)
        assert torch.equal(out.cpu(), cpu + n)
        assert torch.equal(back.cpu(), (cpu + n).view(-1, 64).flip(1).flatten())
        assert torch.equal(swapped.cpu(), (cpu + n).view(-1, 2).flip(1).flatten())


def test_a_fault_of_one_thread_is_not_anothers() -> None:
    """A launch that raises leaves those of other threads alone, and is told on its own thread."""

    def work(number: int) -> None:
        if number % 2:
            _launches(number)
            return
        out = torch.zeros(64, device="mps")
        for _ in range(TURNS):
            with pytest.raises(RuntimeError, match="'far' read or wrote memory that does not exist"):
                library(KERNELS).far(out, 1 << 40)
        assert out.tolist() == [0.0] * 64

    _together(work)


def test_tensors_that_are_freed_at_once() -> None:
    """Nothing holds a launch's tensors once it was called; memory that is given to others is not written."""
    kernels = library(KERNELS)

    def work(number: int) -> None:
        for turn in range(TURNS):
            out = torch.zeros(SIZE, device="mps")
            kernels.add(out, torch.full((SIZE,), float(turn), device="mps"), number)
            view, out = out[SIZE // 2 :], torch.zeros(SIZE, device="mps")
            gc.collect()
            assert view.unique().tolist() == [float(turn + number)]
            assert out.count_nonzero().item() == 0

    _together(work)


def test_a_child_that_is_forked_while_kernels_run() -> None:
    """It is refused as on a Mac it would crash, and its parent's launches, on several threads each, go on."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    stopping = threading.Event()
    failures: list[BaseException] = []

    def meanwhile() -> None:
        try:
            while not stopping.is_set():
                _launches(1)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=meanwhile)
    thread.start()
    try:
        for _ in range(3):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    _launches(2)
                except RuntimeError as error:
                    status = 0 if FORKED in str(error) else 2
                finally:
                    os._exit(status)
            _launches(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stopping.set()
        thread.join()
        torch.set_num_threads(before)
    assert failures == []


def _told_in_a_child(launch: Callable[[], object]) -> str:
    """What a launch raises in a forked child; empty if it runs."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = ""
        try:
            launch()
        except RuntimeError as error:
            told = str(error)
        finally:
            os.write(writing, told.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


@pytest.mark.parametrize("checked", ["", "1"])
def test_a_forked_child_launches_nothing(monkeypatch: pytest.MonkeyPatch, checked: str) -> None:
    """On its parent's tensors too: a launch like an earlier one, another one, and one that writes no tensor."""
    monkeypatch.setenv("ANYMPS_CHECK_SHADERS", checked)
    kernels = torch.mps.compile_shader(KERNELS + "kernel void nothing(constant float& x) {}")
    x, out = torch.ones(64, device="mps"), torch.zeros(64, device="mps")
    kernels.add(out, x, 1)
    kernels.nothing(x, threads=1)
    launches: tuple[Callable[[], object], ...] = (
        lambda: kernels.add(out, x, 2),
        lambda: kernels.rows(out, x, threads=64, group_size=64),
        lambda: kernels.nothing(x, threads=1),
        lambda: kernels.nothing(3.0, threads=1),
    )
    for launch in launches:
        assert _told_in_a_child(launch) == (
            f"{FORKED}, and a Mac crashes or hangs when a forked child uses Metal; keep mps out of this process (a "
            "DataLoader's workers should make CPU tensors, moved in the main process), or start it with the 'spawn' "
            "method, which is the default on a Mac"
        )
        launch()
    assert out.tolist() == [1.0] * 64


SHARED = (
    HEAD
    + """
kernel void wait(device float* out, device float* x, device atomic_int* flags, constant uint& last) {
  x[1] = 7;
  atomic_store_explicit(&flags[0], 1, memory_order_relaxed);
  while (atomic_load_explicit(&flags[1], memory_order_relaxed) == 0) {}
  out[0] = x[2] + x[last];
}
kernel void put(device float* x) { x[0] = 5; }
kernel void through(device float* x, device float* part, device float* out) { x[0] = 9; out[0] = part[0]; part[1] = 3; }
"""
)


@pytest.mark.parametrize("count", [16, 1 << 24])  # what is freed of a large one leaves the process at once
def test_a_buffer_stays_where_it_is(count: int) -> None:
    """A launch looks for writes beside it all the same; a part of its storage shows the same bytes, in a launch too."""
    kernels = library(SHARED)
    x, out = torch.zeros(count, device="mps") + 2, torch.zeros(1, device="mps")  # computed: it has no margins
    place = x.data_ptr()
    part = torch.empty(0, device="mps").set_(x.untyped_storage()[0:64], 0, (16,), (1,))
    for _ in range(2):  # the second launch takes the short way
        x.fill_(2)
        kernels.put(x, threads=1)
        assert (x.data_ptr(), x[:2].tolist(), part[:2].tolist()) == (place, [5.0, 2.0], [5.0, 2.0])
        kernels.through(x, part, out, threads=1)
        assert (out.item(), x[:3].tolist(), part[:3].tolist()) == (9.0, [9.0, 3.0, 2.0], [9.0, 3.0, 2.0])


def test_launches_of_two_threads_write_into_one_buffer() -> None:
    """Each sees the whole buffer, and what the other one writes stays."""
    kernels = library(SHARED)
    count = 1 << 20
    x = torch.zeros(count, device="mps") + 2
    out, flags = torch.zeros(1, device="mps"), torch.zeros(2, dtype=torch.int32, device="mps")
    seen = (ctypes.c_int32 * 2).from_address(flags.data_ptr())
    failures: list[BaseException] = []

    def read() -> None:
        try:
            kernels.wait(out, x, flags, count - 1, threads=1)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        while not seen[0] and thread.is_alive():
            pass
        kernels.put(x, threads=1)
    finally:
        seen[1] = 1
        thread.join()
    assert failures == []
    assert (out.item(), x[:3].tolist()) == (4.0, [5.0, 7.0, 2.0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of this process from /proc")
def test_a_machine_without_room_for_threads() -> None:
    """No other thread's stack fits beside what there is: a launch runs on its own thread alone, and ends well."""
    result = run_with_torch(
        ENABLE
        + """
import resource
torch.set_num_threads(4)
kernels = torch.mps.compile_shader('''#include <metal_stdlib>
using namespace metal;
kernel void twice(device float* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }''')
kernels.twice
x = torch.ones(1 << 20, device="mps")
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (6 << 20), resource.RLIM_INFINITY))
for _ in range(3):
    kernels.twice(x)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
kernels.twice(x)
print(x[0].item(), x[-1].item())
"""
    )
    assert result.lines == ["16.0 16.0"]
