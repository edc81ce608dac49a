"""Ends a script after some steps: an optimizer's, or the rounds of a loop that calls models without one."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from anymps._paths import is_library
from anymps.runs.inside._endings import OF_ANYMPS
from anymps.source import text_of

if TYPE_CHECKING:
    from torch.optim import Optimizer

_LEAST: Final = 2  # rounds of a loop without an optimizer, as in a recording: fewer do not repeat
_TRAINS: Final = re.compile(
    r"\.backward\(|\.step\((?:closure)?\)|[Tt]rainer\b|\b(?:pre_?|fine_?|re_?)?(?:train|fit|tun|learn|optimi[sz])\w*\("
)
"""What code has that trains, or that calls what does: a loop in it may come before the training."""


class StepsDone(SystemExit):
    """The steps that a script was run for are done; ends it with status 0."""


def end_after(
    steps: int, device: str, after_each: Callable[[], None], at_end: Callable[[tuple[str, int] | None], None]
) -> None:
    """End the script after so many steps: optimizers that take turns make a step together.

    Without an optimizer a step is a round of the loop that calls modules with weights on the device, or that runs
    backwards. One more round shows where the last one ended. A loop that may come before a training ends nothing.

    `after_each` is called after each step of an optimizer and each such call, the last one too. `at_end` is called when
    the script ends there, with the file and line of a loop without an optimizer.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from anymps.capture import OptimizerNumbers
    from anymps.record.loop import Rounds

    optimizers, rounds = OptimizerNumbers(), Rounds()

    def end(loop: tuple[str, int] | None = None) -> None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        at_end(loop)
        raise StepsDone(0)

    def after_step(optimizer: Optimizer, *_: Any) -> None:
        rounds.step(optimizers.number(optimizer))
        after_each()
        if rounds.have_ended(steps, optimizers.existing):
            end()

    def counter(may_train: Callable[[Sequence[str]], bool]) -> Callable[[int], None]:
        passes = Rounds(_LEAST)
        is_over = False

        def count(key: int) -> None:
            nonlocal is_over
            frames = _frames_of_program()
            if is_over or not frames or threading.current_thread() is not threading.main_thread():
                return
            passes.step((frames[0].f_code, frames[0].f_lineno, key))
            after_each()
            if passes.number > steps and passes.is_over:
                is_over = bool(rounds.steps or optimizers.existing()) or may_train(
                    [frame.f_code.co_filename for frame in frames]
                )
                if not is_over:
                    own = next((frame for frame in frames if not is_library(frame.f_code.co_filename)), frames[0])
                    end((own.f_code.co_filename, own.f_lineno))

        return count

    register_optimizer_step_post_hook(after_step)  # after the recording's own hook, which ends the step
    _after_backwards(counter(lambda files: False))
    _after_modules(device, counter(lambda files: any(map(_trains, files))))


def _after_modules(device: str, count: Callable[[int], None]) -> None:
    """Call `count` after each call of a module with weights on the device that no other module makes."""
    import torch

    original: Callable[..., Any] = torch.nn.Module.__call__
    within = threading.local()

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if getattr(within, "is_called", False):
            return original(module, *args, **kwargs)
        within.is_called = True
        try:
            result = original(module, *args, **kwargs)
        finally:
            within.is_called = False
        weight = next(module.parameters(), None)
        if weight is not None and weight.device.type == device:
            count(id(module))
        return result

    torch.nn.Module.__call__ = call  # type: ignore[method-assign]


def _after_backwards(count: Callable[[int], None]) -> None:
    """Call `count` after each backward, and after each `torch.autograd.grad`."""
    import torch

    engine = "_engine_run_backward"  # what both of them call
    original = getattr(torch.autograd, engine)

    def run(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        count(0)
        return result

    setattr(torch.autograd, engine, run)


def _frames_of_program() -> list[FrameType]:
    """The frames that run, without torch's and ours, the innermost first."""
    import torch

    internal = (os.path.dirname(torch.__file__) + os.sep, OF_ANYMPS, "<frozen")
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith(internal):
            found.append(frame)
        frame = frame.f_back
    return found


def _trains(file: str) -> bool:
    """Whether a file of the program's has code that trains."""
    return not is_library(file) and _TRAINS.search(text_of(file)) is not None
