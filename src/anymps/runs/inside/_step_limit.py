"""Ends a script after a number of steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim import Optimizer


class StepsDone(SystemExit):
    """The steps that a script was run for are done; ends it with status 0."""


def end_after(steps: int, after_each: Callable[[], None], at_end: Callable[[], None]) -> None:
    """End the script after so many steps: optimizers that take turns make a step together.

    `after_each` is called after each step of an optimizer, the last one too, `at_end` when the script ends there.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from anymps.capture import OptimizerNumbers
    from anymps.record.loop import Rounds

    optimizers, rounds = OptimizerNumbers(), Rounds()

    def after_step(optimizer: Optimizer, *_: Any) -> None:
        rounds.step(optimizers.number(optimizer))
        after_each()
        if rounds.have_ended(steps, optimizers.existing):
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            at_end()
            raise StepsDone(0)

    register_optimizer_step_post_hook(after_step)  # after the recording's own hook, which ends the step
