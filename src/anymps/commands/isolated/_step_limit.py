"""Ends a script after a number of optimizer steps."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anymps.commands._runner import StepsDone
from anymps.plan import StepCounter

if TYPE_CHECKING:
    from torch.optim import Optimizer


def end_after(counter: StepCounter, after_each: Callable[[], None] = lambda: None) -> None:
    """End the script when `counter` has counted enough steps: optimizers that take turns make a step together.

    `after_each` is called after each step of an optimizer, the last one too.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from anymps.train.timing import optimizer_key

    def after_step(optimizer: Optimizer, *_: Any) -> None:
        is_last = counter.step(optimizer_key(optimizer))
        after_each()
        if is_last:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            raise StepsDone(0)

    register_optimizer_step_post_hook(after_step)  # after the recording's own hook, which ends the step


def counter_of(steps: int) -> StepCounter:
    """A counter of whole steps, which looks at what optimizers there are in this process."""
    return StepCounter(steps, _existing)


def _existing() -> set[Hashable]:
    from torch.optim import Optimizer

    from anymps.train.timing import optimizer_key

    made = [found for found in gc.get_objects() if issubclass(type(found), Optimizer)]  # asks no proxy what it is
    return {optimizer_key(optimizer) for optimizer in made if getattr(optimizer, "param_groups", None)}
