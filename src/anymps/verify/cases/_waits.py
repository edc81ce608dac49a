"""Cases of waits: on a Mac a call is timed behind a long queue; the virtual device says what it would wait for."""

from __future__ import annotations

import functools
import time
import warnings
from typing import Final

import torch

from anymps.device import is_virtual
from anymps.verify.cases._answering import Answer, Case, refusal
from anymps.verify.cases._waiting import WAITING, SampleCall

_QUEUE: Final = 0.15
"""Seconds of work that stand in the queue."""
_SIDE: Final = 2048
_ROUNDS: Final = 2


def wait_cases() -> list[Case]:
    """All calls that the tests know, those that wait and their neighbours."""
    return [Case(name, functools.partial(_asked, call)) for name, call in WAITING.items()]


def _asked(call: SampleCall) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            waits = _recorded(call) if is_virtual() else _timed(call)
        except Exception as error:
            return refusal(error)
    return {"does": "computes", "value": "waits" if waits else "does not wait"}


def _recorded(call: SampleCall) -> bool:
    from anymps.capture import record

    given = call.make()
    with record() as capture:
        call.call(*given)
    return any(True for _ in capture.recording.waits())


def _timed(call: SampleCall) -> bool:
    """The quickest of some rounds: a call that waits never takes less than the queue, one that does not may be late."""
    call.call(*call.make())  # what is compiled at the first call is no wait
    torch.mps.synchronize()
    x, many = _work()
    took, queue = float("inf"), 0.0
    for _ in range(_ROUNDS):
        given = call.make()
        torch.mps.synchronize()
        begun = time.perf_counter()
        for _ in range(many):
            torch.mm(x, x)
        before = time.perf_counter()
        call.call(*given)
        after = time.perf_counter()
        torch.mps.synchronize()
        took, queue = min(took, after - before), max(queue, time.perf_counter() - begun)
    return took > queue / 2


@functools.cache
def _work() -> tuple[torch.Tensor, int]:
    """A matrix, and how many of its products take as long as the queue is to be."""
    x = torch.rand(_SIDE, _SIDE, device="mps")
    some = 8
    for _ in range(2):
        torch.mps.synchronize()
        begun = time.perf_counter()
        for _ in range(some):
            torch.mm(x, x)
        torch.mps.synchronize()
        each = (time.perf_counter() - begun) / some
    return x, max(2, min(200, round(_QUEUE / each)))
