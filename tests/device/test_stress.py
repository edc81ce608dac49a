"""What a long day does to the device: many threads, forks, sizes and failed allocations, and many first uses at once.

    ANYMPS_STRESS=200 python -m pytest -q tests/device/test_stress.py

does so many times as much of each as the suite, and builds the core in six processes at once. So does the nightly
workflow.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from device.compare import text_of
from processes import ENABLE, PATIENCE, clean_environment, run_python

SCALE = int(os.environ.get("ANYMPS_STRESS", "1"))
THREADS = 8
PROCESSES = 6

pytestmark = pytest.mark.usefixtures("virtual_device")  # hardware may crash with two threads (pytorch issue 197805)


def work(seed: int, rounds: int) -> list[float]:
    """What a thread computes: a convolution with its gradients, views, copies to the host and an event; its losses."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(4, 2, 3, 3, generator=generator).to("mps").requires_grad_()
    images = torch.randn(3, 2, 8, 8, generator=generator).to("mps", non_blocking=True)
    losses = []
    for number in range(rounds):
        event = torch.mps.Event()
        out = nn.functional.conv2d(images, weight).relu()[:, number % 4 :: 2].flatten(1).softmax(-1)
        (gradient,) = torch.autograd.grad(out.square().sum(), weight)
        event.record()
        with torch.no_grad():
            weight -= 0.1 * gradient
        event.synchronize()
        losses.append(weight.sum().item())
    return losses


def test_eight_threads_compute_what_one_does() -> None:
    """Each of eight threads at once gives the numbers that it gives alone, and no memory stays behind."""
    rounds = 4 * SCALE
    alone = [work(seed, rounds) for seed in range(THREADS)]
    gc.collect()  # what an earlier test has left in a cycle
    before = torch.mps.current_allocated_memory()
    together = threading.Barrier(THREADS)

    def run(seed: int) -> list[float]:
        together.wait()
        return work(seed, rounds)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(run, range(THREADS))) == alone
    gc.collect()
    assert torch.mps.current_allocated_memory() <= before


def test_memory_that_runs_out_again_and_again() -> None:
    """Each time the text is the same but for the sizes, what lives stays right, and all memory comes back."""
    kept = torch.arange(1000.0, device="mps")
    torch.mps.empty_cache()
    before = torch.mps.current_allocated_memory()
    most = torch.mps.recommended_max_memory()
    torch.mps.set_per_process_memory_fraction(0.25)
    try:
        for number in range(20 * SCALE):
            parts = [torch.empty(most // 20, dtype=torch.uint8, device="mps") for _ in range(1 + number % 3)]
            text = text_of(RuntimeError, torch.empty, int(most * 0.3) + number, dtype=torch.uint8, device="mps")
            assert text.startswith("MPS backend out of memory"), text
            del parts
            torch.mps.empty_cache()
    finally:
        torch.mps.set_per_process_memory_fraction(1.7)
    assert torch.mps.current_allocated_memory() == before
    assert kept.sum().item() == 499500.0


def test_sizes_that_are_ever_new_cost_no_memory() -> None:
    """Operators on tensors of ever new sizes, of which the second half adds next to nothing to the process."""
    result = run_python(
        ENABLE
        + f"""
import resource
base = torch.ones(1, 1024, 1024, device="mps")
def meet(first, last):
    for number in range(first, last):
        base.new_empty((0, 1 + number // 1024, 1 + number % 1024)).neg()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = {min(5000 * SCALE, 1_000_000)}
half = meet(0, count // 2)
print((meet(count // 2, count) - half) // 1024 < 16, torch.mps.current_allocated_memory() // 2**20)
""",
        timeout=PATIENCE * 4,
    )
    assert result.lines == ["True 4"]


def test_forks_in_the_middle_of_work() -> None:
    """Children of a process whose threads use the device are told so and compute on the CPU; the parent goes on."""
    result = run_python(
        ENABLE
        + f"""
import itertools, os, signal, threading
stop = threading.Event()
begun = threading.Barrier(4)
def use():
    x = torch.rand(64, device="mps")
    for number in itertools.count():
        x = (x * 1.01).softmax(0)
        torch.empty(1000, device="mps")
        if number == 0:
            begun.wait()  # a child that is forked while torch sets a kernel up waits for ever for that to end
        if stop.is_set():
            break
threads = [threading.Thread(target=use) for _ in range(3)]
for thread in threads:
    thread.start()
torch.ones(3).sum().item()
begun.wait()
ends = set()
for number in range({5 * SCALE}):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            torch.ones(3, device="mps")
        except RuntimeError as error:
            told = "the mps device was used before this process was forked" in str(error)
            os._exit(0 if told and torch.ones(3).sum().item() == 3 else 1)
        os._exit(2)
    ends.add(os.waitpid(child, 0)[1])
stop.set()
for thread in threads:
    thread.join()
print(ends, torch.ones(3, device="mps").sum().item())
""",
        timeout=PATIENCE * 4,
    )
    assert result.lines == ["{0} 3.0"]


@pytest.mark.parametrize("recorded", [False, True])
def test_children_free_what_their_parent_has_while_its_threads_allocate(recorded: bool) -> None:
    """Whatever locks the parent has taken, none of 300 children waits for one when it frees tensors."""
    result = run_python(
        ENABLE
        + f"""
import contextlib, os, signal, threading
stop, begun = threading.Event(), threading.Barrier(3)
def use():
    torch.empty(1000, device="mps")
    begun.wait()
    while not stop.is_set():
        for _ in range(50):
            torch.empty(1000, device="mps")
threads = [threading.Thread(target=use) for _ in range(2)]
ends = set()
with anymps.record() if {recorded} else contextlib.nullcontext():
    held = [torch.ones(8, device="mps") for _ in range(8)]
    for thread in threads:
        thread.start()
    begun.wait()
    for _ in range({300 * SCALE}):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            held.clear()
            torch.mps.current_allocated_memory()
            os._exit(0)
        ends.add(os.waitpid(child, 0)[1])
        if ends != {{0}}:
            break
    stop.set()
    for thread in threads:
        thread.join()
print(ends)
""",
        timeout=PATIENCE * 4,
    )
    assert result.lines == ["{0}"]


@pytest.mark.skipif(
    SCALE == 1, reason="builds the core; tests/core/test_build.py has two processes and a core of one line"
)
def test_builds_in_six_processes_at_once(tmp_path: Path) -> None:
    """Of six first uses with one empty cache one builds the core, and all have the device."""
    code = ENABLE + "print(torch.ones(3, device='mps').sum().item())"
    environment = {**clean_environment(), "ANYMPS_CACHE_DIR": str(tmp_path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    said = [process.communicate(timeout=PATIENCE * 4) for process in running]
    assert [out.strip() for out, _ in said] == ["3.0"] * PROCESSES, said
    assert sum("native core built in" in err for _, err in said) == 1, said
    assert sum("anymps: building the native core" in err for _, err in said) == 1, said
