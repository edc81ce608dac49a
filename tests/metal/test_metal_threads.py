"""Launches from several threads of Python at once, beside faults, forks and tensors that are freed."""

from __future__ import annotations

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
