"""Launches from several threads of Python at once, beside faults, forks and tensors that are freed."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable

import pytest
import torch

from anymps._threads import torch_threads
from metal_shaders import HEAD, library

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


def test_the_same_kernels_from_several_threads() -> None:
    """Loops, groups and fibers, on the runtime's own threads too; each launch gets its own numbers."""
    with torch_threads(3):
        _together(_launches)


def test_a_fault_of_one_thread_is_not_anothers() -> None:
    """A launch that raises leaves those of other threads alone, and is told on its own thread."""

    def work(number: int) -> None:
        if number % 2:
            _launches(number)
            return
        out = torch.zeros(64, device="mps")
        for _ in range(TURNS):
            with pytest.raises(RuntimeError, match=r"'far' read or wrote (memory that does not exist|an address)"):
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


def test_a_buffer_moves_while_another_thread_reads_it() -> None:
    """A launch that may write it gives it margins; its old memory stays while another thread's kernel reads there."""
    kernels = library(
        HEAD
        + """
kernel void wait(device float* out, device const float* x, device atomic_int* flags, constant uint& last) {
  atomic_store_explicit(&flags[0], 1, memory_order_relaxed);
  while (atomic_load_explicit(&flags[1], memory_order_relaxed) == 0) {}
  out[0] = x[0] + x[last];
}
kernel void put(device float* x) { x[0] = 5; }
"""
    )
    count = 1 << 24  # so large that what is freed leaves the process at once
    x = torch.zeros(count, device="mps") + 2  # computed: it has no margins
    out, flags = torch.zeros(1, device="mps"), torch.zeros(2, dtype=torch.int32, device="mps")
    kernels.put(flags.view(torch.float32), threads=1)
    flags.zero_()
    seen = (ctypes.c_int32 * 2).from_address(flags.data_ptr())
    failures: list[BaseException] = []

    def read() -> None:
        try:
            kernels.wait(out, x, flags, count - 1, threads=1)
        except BaseException as failure:
            failures.append(failure)

    before = x.data_ptr()
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
    assert x.data_ptr() != before
    assert (out.item(), x[0].item(), x[1].item()) == (4.0, 5.0, 2.0)
