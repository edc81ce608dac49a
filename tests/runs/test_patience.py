"""How long a process may take: seconds as the clock counts them, or as it uses the processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any, cast

import pytest

from anymps.runs import _process
from anymps.runs._process import _GLANCE, PATIENCE, _processor_seconds, _wait


class Process:
    """One that uses the processor `share` of the time and ends by itself after `ends` seconds; it waits at no clock."""

    pid = 0

    def __init__(self, share: float, ends: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.share, self.ends, self.told = 0.0, share, ends, 0.0
        monkeypatch.setattr(_process.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(_process, "_processor_seconds", lambda _: share * self.now)

    def wait(self, timeout: float) -> int:
        if self.told or self.now + timeout >= self.ends:
            return 0
        self.now += timeout
        raise subprocess.TimeoutExpired("", timeout)

    def send_signal(self, number: int) -> None:
        assert number == signal.SIGINT
        self.told = self.now


@pytest.mark.parametrize(
    ("share", "ends", "patient", "status", "told"),
    [
        (1.0, 9.0, True, 0, 0.0),
        (1.0, 99.0, True, None, 10.0),
        (4.0, 99.0, True, None, 10.0),  # on four cores, which a clock counts once
        (0.5, 19.0, True, 0, 0.0),  # half of the time others have the processor
        (0.5, 99.0, True, None, 20.0),
        (0.0, 99.0, True, None, 10.0 * PATIENCE),
        (0.5, 19.0, False, None, 10.0),
    ],
)
def test_a_busy_machine_takes_no_time_from_a_process(
    monkeypatch: pytest.MonkeyPatch, share: float, ends: float, patient: bool, status: int | None, told: float
) -> None:
    """If it may use so many seconds of the processor; one that uses none is told to stop after four times as many."""
    process = Process(share, ends, monkeypatch)
    assert _wait(cast(Any, process), 10.0, PATIENCE * 10.0 if patient else 10.0) == status
    assert process.told == pytest.approx(told, abs=2 * _GLANCE)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell it")
def test_what_a_process_uses_of_the_processor() -> None:
    """By its own clock, as it counts itself; infinity for one that is gone."""
    before = time.process_time()
    seen = _processor_seconds(os.getpid())
    assert before <= seen <= time.process_time()
    with subprocess.Popen(["true"]) as gone:
        pass
    assert _processor_seconds(gone.pid) == float("inf")
