"""Times the optimizer steps of an unmodified program."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from anymps.train.timing._clock import CLOCK, Clock, Stopwatch, Synchronize
from anymps.train.timing._timing import Run, Timing


class StepTimer:
    """Times whole training steps, each from the end of one `optimizer.step()` to the end of the next.

    A context manager. The first ``warmup`` steps are not counted. The device is that of the first optimizer's first
    parameter. It is synchronised after each step, so the host cannot run ahead into the next one. With several
    optimizers, each of their steps counts. ``on_step`` is called after each step with the number of counted ones.
    """

    def __init__(
        self,
        warmup: int = 5,
        on_step: Callable[[int], None] | None = None,
        *,
        clock: Clock = CLOCK,
        synchronize: Synchronize | None = None,
    ) -> None:
        if warmup < 1:
            raise ValueError(f"warmup must be at least 1, not {warmup}: the first step has no beginning")
        self.steps = 0
        """All steps so far, those that do not count included."""
        self._warmup, self._on_step = warmup, on_step
        self._clock, self._synchronize = clock, synchronize
        self._watch: Stopwatch | None = None
        self._runs: list[Run] = []
        self._start = 0
        self._over = False
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._hook: Any = None

    def __enter__(self) -> StepTimer:
        self._hook = register_optimizer_step_post_hook(self._after_step)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def timing(self, name: str) -> Timing | None:
        """What was measured, or None if no step counts yet."""
        if self._watch is None or not self._runs:
            return None
        return Timing(name, str(self._watch.device), tuple(self._runs), virtual=self._watch.virtual)

    @property
    def optimizers(self) -> int:
        """How many optimizers have stepped."""
        return len(self._optimizers)

    def stop(self) -> None:
        """Time no further step, and synchronise after none; `on_step` is called all the same."""
        self._over = True

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not self._over:
            self._time(optimizer)
        self.steps += 1
        self._optimizers.add(optimizer)
        if self._on_step is not None:
            self._on_step(len(self._runs))
        if self._watch is not None:
            self._start = self._watch.clock()

    def _time(self, optimizer: torch.optim.Optimizer) -> None:
        if self._watch is None:
            device = next((p.device for group in optimizer.param_groups for p in group["params"]), None)
            self._watch = Stopwatch.of(device, self._clock, self._synchronize)
        queued = self._watch.clock()
        self._watch.synchronize()
        finished = self._watch.clock()
        if self.steps >= self._warmup:
            self._runs.append(Run(queued - self._start, finished - self._start))
