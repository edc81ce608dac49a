"""A clock, and the synchronise of a device that makes its times correct."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from anymps.device import is_virtual
from anymps.train.timing._timing import Run

Clock = Callable[[], int]
"""Gives nanoseconds that never go back."""
Synchronize = Callable[[], None]
"""Returns when the device has done all that was queued."""
Device = torch.device | str | None

CLOCK: Clock = time.perf_counter_ns


@dataclass(frozen=True)
class Stopwatch:
    """Measures time on one device."""

    device: torch.device
    clock: Clock
    synchronize: Synchronize

    @classmethod
    def of(cls, device: Device, clock: Clock = CLOCK, synchronize: Synchronize | None = None) -> Stopwatch:
        """A stopwatch for a device: without one named, the accelerator that is there, else the CPU."""
        where = resolve(device)
        return cls(where, clock, synchronize or synchronizer(where))

    @property
    def virtual(self) -> bool:
        """Whether the device is anymps' own."""
        return self.device.type == "mps" and is_virtual()

    def time(self, function: Callable[[], object], calls: int = 1) -> Run:
        """Time some calls, with the device idle before and done after."""
        self.synchronize()
        start = self.clock()
        for _ in range(calls):
            function()
        queued = self.clock()
        self.synchronize()
        return Run(queued - start, self.clock() - start)

    def time_synchronize(self) -> int:
        """The time of a synchronise that has nothing to wait for, in nanoseconds: the median of five."""
        return sorted(self.time(lambda: None).finished_ns for _ in range(5))[2]


def resolve(device: Device) -> torch.device:
    """The device that is meant. Raises RuntimeError, torch's own, for a name that torch does not know."""
    if device is not None:
        return torch.device(device)
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def synchronizer(device: torch.device) -> Synchronize:
    """The synchronise of a device: nothing for the CPU, whose calls return when they are done."""
    if device.type in ("cpu", "meta"):
        return lambda: None
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: torch.accelerator.synchronize(device)
