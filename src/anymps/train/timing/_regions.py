"""Times parts of your own loop, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from anymps._text import clean
from anymps.train.timing._clock import CLOCK, Clock, Device, Stopwatch, Synchronize
from anymps.train.timing._timing import Run, Timing, table, warnings_of


class Timer:
    """Times the regions of a loop::

        timer = Timer("mps")
        for batch in loader:
            with timer.region("forward"):
                loss = model(batch).loss
            with timer.region("backward"):
                loss.backward()
        print(timer)

    Each region synchronises at both ends, so the host cannot run ahead: the times of the regions are correct, but the
    loop as a whole is slower than without them. The first time in a region is kept apart. Use a timer in one thread
    only.
    """

    def __init__(self, device: Device = None, *, clock: Clock = CLOCK, synchronize: Synchronize | None = None) -> None:
        self._watch = Stopwatch.of(device, clock, synchronize)
        self._runs: dict[str, list[Run]] = {}

    @contextlib.contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Time what is inside. One that ends with an exception is not counted."""
        watch = self._watch
        watch.synchronize()
        start = watch.clock()
        yield
        queued = watch.clock()
        watch.synchronize()
        self._runs.setdefault(name, []).append(Run(queued - start, watch.clock() - start))

    @property
    def timings(self) -> dict[str, Timing]:
        """The regions by name, in the order in which they first ended; those that ran once are not in it."""
        return {
            name: Timing(name, str(self._watch.device), tuple(rest), first=first, virtual=self._watch.virtual)
            for name, (first, *rest) in self._runs.items()
            if rest
        }

    def __str__(self) -> str:
        timings = self.timings
        lines = [table(list(timings.values()))] if timings else []
        lines += [
            f"{name}: ran once, which does not count: a first call compiles"
            for name in self._runs
            if name not in timings
        ]
        for timing in timings.values():
            lines += [f"warning: {clean(timing.name)}: {text}" for text in warnings_of(timing)]
        return "\n".join(lines)
