"""What every run watches of its script: the losses, and the error that ends it."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anymps._text import error_words

if TYPE_CHECKING:
    from torch import Tensor

OF_ANYMPS: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
"""How names of anymps's own files begin."""


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
