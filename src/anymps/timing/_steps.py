"""Times the training steps of an unmodified program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from anymps.capture import OptimizerNumbers
from anymps.record.loop import Rounds
from anymps.timing._measure import CLOCK, Clock, Stopwatch, Synchronize
from anymps.timing._timing import Run, Timing


class StepTimer:
    """Times whole training steps, each from the end of one `optimizer.step()` to the end of the next.

    A context manager. The first ``warmup`` steps, at least one, are not counted. The device is that of the first
    optimizer's first parameter. It is synchronised after each step, so the host cannot run ahead into the next one. If
    optimizers take turns, a step is a round of all of them. ``on_step`` is called after each step with the number of
    counted ones.
    """

    def __init__(
        self,
        warmup: int = 5,
        on_step: Callable[[int], None] | None = None,
        *,
        clock: Clock = CLOCK,
        synchronize: Synchronize | None = None,
    ) -> None:
        self._warmup, self._on_step = warmup, on_step
        self._clock, self._synchronize = clock, synchronize
        self._watch: Stopwatch | None = None
        self._optimizers = OptimizerNumbers()
        self._rounds = Rounds()
        self._runs: list[Run] = []
        self._before: list[Run] = []  # of a loop that turned out to have another optimizer, or ended
        self._starts: dict[int, int] = {}  # by the optimizer that ended a step, when the next one began
        self._over = False
        self._hook: Any = None

    def __enter__(self) -> StepTimer:
        self._hook = register_optimizer_step_post_hook(self._after_step)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    @property
    def steps(self) -> int:
        """All steps so far, including those that do not count."""
        return self._rounds.number

    def timing(self, name: str) -> Timing | None:
        """What was measured, or None if no step counts yet."""
        runs = self._runs or self._before
        if self._watch is None or not runs:
            return None
        return Timing(name, str(self._watch.device), tuple(runs), virtual=self._watch.virtual)

    def stop(self) -> None:
        """Stop timing and synchronising; `on_step` is still called after each step."""
        self._over = True

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        rounds, before = self._rounds, self._rounds.number
        rounds.step(self._optimizers.number(optimizer))
        if rounds.number < before:  # the rounds so far were none
            self._before, self._runs = self._runs or self._before, []
        counts = rounds.number > self._warmup
        # During the warm-up, any optimizer may turn out to end the rounds.
        if not self._over and (rounds.is_over or rounds.number < self._warmup):
            self._time(optimizer, counts=counts)
        if rounds.is_over and self._on_step is not None:
            self._on_step(len(self._runs))
        if self._watch is not None:
            self._starts[rounds.name] = self._watch.clock()

    def _time(self, optimizer: torch.optim.Optimizer, *, counts: bool) -> None:
        if self._watch is None:
            device = next((p.device for group in optimizer.param_groups for p in group["params"]), "cpu")
            self._watch = Stopwatch.of(device, self._clock, self._synchronize)
        queued = self._watch.clock()
        self._watch.synchronize()
        finished = self._watch.clock()
        start = self._starts.get(self._rounds.name)
        if counts and start is not None:
            self._runs.append(Run(queued - start, finished - start))
