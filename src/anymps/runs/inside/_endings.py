"""What every run watches of its script: the losses, the steps that end it, and the error that does."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from anymps._text import error_words

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

OF_ANYMPS: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
"""How names of anymps's own files begin."""


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


def watch_losses(note: Callable[[Sequence[Tensor]], None]) -> None:
    """Hand `note` the numbers that each backward begins with, from now on."""
    import torch

    original: Callable[..., Any] = torch.autograd.backward  # which `Tensor.backward` calls, too
    within = threading.local()

    def backward(tensors: Any, *given: Any, **named: Any) -> Any:
        if getattr(within, "is_watched", False):  # a mode of functions hands the call to this one again
            return original(tensors, *given, **named)
        every = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
        note([tensor for tensor in every if getattr(tensor, "numel", lambda: 0)() == 1 and not tensor.is_complex()])
        within.is_watched = True
        try:
            return original(tensors, *given, **named)
        finally:
            within.is_watched = False

    torch.autograd.backward = backward


def trail_of(ending: Mapping[str, object]) -> list[tuple[str, int]]:
    """The lines of the exception that ended a script, the outermost first, without ours."""
    error = getattr(sys, "last_value", None) if "exception" in ending else None
    trace = getattr(error, "__traceback__", None)
    frames = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace))
    return [(os.path.realpath(name), line) for name, line in frames if not name.startswith(("<", OF_ANYMPS))]


def error_of(ending: Mapping[str, object]) -> str:
    """How a run ended, in one line; empty for one that ended with 0."""
    if not ending.get("status") and "exception" not in ending:
        return ""
    name = str(ending.get("exception", f"exit status {ending.get('status')}"))
    message = str(ending.get("message", ""))
    if "Original Traceback" in message:  # torch passes on what was raised in a worker
        message = next((line for line in reversed(message.splitlines()) if line[:1].isalpha()), message)
    return error_words(name, message)
