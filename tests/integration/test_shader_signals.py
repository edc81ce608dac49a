"""Handlers of signals that a program has run while a kernel keeps the main thread, in each form that kernels have."""

from __future__ import annotations

import signal
import sys

import pytest

from processes import run_command

pytestmark = pytest.mark.integration

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void alone(volatile device float* x, uint i [[thread_position_in_grid]]) {
  while (x[0] == 0) {}
  x[i + 8] = 1;
}
kernel void cut(volatile device float* x, uint i [[thread_position_in_grid]]) {
  threadgroup float all[32];
  all[i % 32] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  while (x[0] == 0) {}
  x[i + 8] = all[(i + 1) % 32];
}
kernel void fibers(volatile device float* x, uint i [[thread_position_in_grid]]) {
  while (x[0] == 0) simdgroup_barrier(mem_flags::mem_none);
  x[i + 8] = 1;
}
kernel void first(volatile device float* x, uint i [[thread_position_in_grid]]) {
  if (i == 70000) while (x[0] == 0) {}
  x[i + 8] = 1;
}
kernel void more(device float* x, uint i [[thread_position_in_grid]]) {
  threadgroup float all[32];
  all[i % 32] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = all[i % 32] + simd_sum(1);
}
"""
BEGIN = f"""
import signal, sys, torch, anymps
anymps.enable(quiet=True)
torch.set_num_threads(int(sys.argv[1]))
library = torch.mps.compile_shader({SOURCE!r})
x = torch.zeros(100000, device="mps")
y = torch.zeros(65536, device="mps")
library.more(y, group_size=32)
forms = [("alone", 64), ("cut", 64), ("fibers", 64), ("first", 90000)]
"""
RAISES = (
    BEGIN
    + """
class Alarm(Exception):
    pass

def on_alarm(number, frame):
    raise Alarm(number)

signal.signal(signal.SIGALRM, on_alarm)
for name, threads in forms:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        getattr(library, name)(x, threads=threads, group_size=32)
    except Alarm as error:
        print(name, error.args == (signal.SIGALRM,), error.__traceback__.tb_frame.f_code.co_name)
x += 1
library.cut(x, threads=64, group_size=32)
print(x[8:72].sum().item(), signal.getitimer(signal.ITIMER_REAL))
"""
)
GOES_ON = (
    BEGIN
    + """
def on_alarm(number, frame):
    global heard
    heard += 1
    library.more(y, group_size=32)
    if heard >= 3:  # a handler may interrupt another before it comes to this line
        x[0] = 1
        signal.setitimer(signal.ITIMER_REAL, 0)

signal.signal(signal.SIGALRM, on_alarm)
for name, threads in forms:
    heard = 0
    x.zero_()
    before = y[0].item()
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    getattr(library, name)(x, threads=threads, group_size=32)
    print(name, heard >= 3, int(x[8:].sum().item()) == threads, (y - before).unique().tolist() == [32.0 * heard])
"""
)


def run(script: str, threads: int, **variables: str) -> str:
    """What a process prints. No limit ends a launch that no handler ends."""
    answer = run_command("-c", script, str(threads), env={"ANYMPS_SHADER_SECONDS": "0", **variables})
    return answer.out + answer.err


@pytest.mark.parametrize(("threads", "checked"), [(1, ""), (2, ""), (1, "1")])
def test_a_handler_that_raises_ends_an_endless_kernel(threads: int, checked: str) -> None:
    """SIGALRM, as `signal.alarm` and timeouts of tests have it: the program sees its own exception, and goes on."""
    told = "".join(f"{name} True <module>\n" for name in ("alone", "cut", "fibers", "first"))
    assert run(RAISES, threads, ANYMPS_CHECK_SHADERS=checked) == told + "64.0 (0.0, 0.0)\n"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_goes_on_behind_a_handler(threads: int) -> None:
    """It runs kernels itself, and writes what the waiting one reads: that ends as it would have without signals."""
    told = "".join(f"{name} True True True\n" for name in ("alone", "cut", "fibers", "first"))
    assert run(GOES_ON, threads) == told


@pytest.mark.skipif(sys.platform != "linux", reason="sends a real-time signal to one thread")
def test_interruptions_that_have_queued_up() -> None:
    """A thread without a core gets many at once. Each waits for the one before: they share a fiber's small stack."""
    script = (
        BEGIN
        + """
import threading
flood, ended = signal.SIGRTMAX - 4, threading.Event()
main = threading.get_ident()

def send():
    while not ended.is_set():
        for _ in range(200):
            signal.pthread_kill(main, flood)
        ended.wait(0.001)

sender = threading.Thread(target=send)
sender.start()

class Alarm(Exception):
    pass

def on_alarm(number, frame):
    raise Alarm(number)

signal.signal(signal.SIGALRM, on_alarm)
for name in ("cut", "fibers"):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        getattr(library, name)(x, threads=64, group_size=32)
    except Exception as error:
        print(name, repr(error))
ended.set()
sender.join()
"""
    )
    expected = "".join(f"{name} Alarm({signal.SIGALRM.value})\n" for name in ("cut", "fibers"))
    assert run(script, 1, ANYMPS_CHECK_SHADERS="1") == expected


def test_a_handler_cannot_launch_a_checked_kernel_within_another() -> None:
    """The checker follows one at a time: it says so, and neither waits for itself nor mixes them up.

    The handler's launch is over a grid of its own: one that repeats a clean launch needs no checker.
    """
    script = (
        BEGIN
        + """
signal.signal(signal.SIGALRM, lambda *_: library.more(y, threads=32768, group_size=32))
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    library.alone(x, threads=64, group_size=32)
except RuntimeError as error:
    print(error)
library.more(y, group_size=32)
print(y[0].item())
"""
    )
    assert run(script, 1, ANYMPS_CHECK_SHADERS="1") == (
        "anymps: a signal handler launched the Metal kernel 'more' while another one was checked: the checker "
        "follows one at a time\n64.0\n"
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_interruptions_leave_the_checker_as_it_was(threads: int) -> None:
    """Ctrl-C ends a launch in the kernel's own code, never while the checker or the runtime changes its memory."""
    script = (
        BEGIN
        + """
import itertools, random, threading
shapes = torch.mps.compile_shader('''
#include <metal_stdlib>
using namespace metal;
kernel void far(device float* x, constant uint& n, uint i [[thread_position_in_grid]]) {
  threadgroup float all[32];
  all[i % 32] = x[i * 256];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 0; k < n; ++k) x[i * 256 + k] += all[i % 32] + simd_sum(1);
}''')
signal.signal(signal.SIGINT, lambda *_: None)
main, over = threading.get_ident(), threading.Event()

def send():
    times = random.Random(1)
    while not over.wait(times.random() * 0.004):
        signal.pthread_kill(main, signal.SIGINT)

sender = threading.Thread(target=send)
sender.start()
interrupted, told = 0, set()
for number in itertools.count():
    try:  # another launch each time: one that repeats a clean launch needs no checker
        shapes.far(x, number % 251, threads=32 * (1 + number % 12), group_size=32)
    except KeyboardInterrupt:
        interrupted += 1
    except RuntimeError as error:
        told.add(str(error))
    if interrupted == 100:
        break
over.set()
sender.join()
x.zero_()
shapes.far(x, 0, threads=256, group_size=32)
print(interrupted, told, x.sum().item())
"""
    )
    assert run(script, threads, ANYMPS_CHECK_SHADERS="1") == "100 set() 0.0\n"
