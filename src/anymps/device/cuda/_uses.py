"""What all modules here need: reports of uses of CUDA to a recording, while one runs, and attributes to put back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

Listener = Callable[[str, bool], None]
"""Gets what has no counterpart on a Mac, in a sentence, and whether it was passed over (`--alone`), not refused; the
empty text for what mps answered."""

_listener: Listener | None = None
_MISSING = object()


def on_use(listener: Listener | None) -> None:
    """Tell `listener` of each use from now on; None ends that."""
    global _listener
    _listener = listener


def report_use(refused: str = "", *, passed: bool = False) -> None:
    """The running line of the program uses CUDA; `passed`: what no Mac has was passed over (`--alone`)."""
    if _listener is not None:
        _listener(refused, passed)


def report_caller(depth: int) -> None:
    """The same, unless torch calls (`torch.manual_seed` seeds every device that there may be), or this package."""
    if _listener is not None and not called_by(depth + 1, "torch", "anymps.device.cuda"):
        _listener("", False)


def called_by(depth: int, *packages: str) -> bool:
    """Whether the caller so many frames up is code of one of the packages or modules."""
    name = str(sys._getframe(depth + 1).f_globals.get("__name__", ""))
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with each call from outside of torch reported."""

    @functools.wraps(function)
    def answered(*args: Any, **kwargs: Any) -> Any:
        report_caller(1)
        return function(*args, **kwargs)

    return answered


class Patches(ExitStack):
    """Remembers what stood where; `close` puts everything back, the last one first."""

    def put(self, owner: Any, name: str, value: object) -> None:
        """Set an attribute of a module or class."""
        former = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self.callback(*((delattr, owner, name) if former is _MISSING else (setattr, owner, name, former)))
