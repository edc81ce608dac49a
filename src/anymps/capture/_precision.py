"""Where a program chooses its precision: autocast regions, gradient scalers, and what runs under them."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import torch
from torch._guards import TracingContext
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler

from anymps.capture._core import Core, Finish

Watched = Callable[..., Finish | None]
_CHECKPOINT: Final = os.path.join("torch", "utils", "checkpoint.py")
_NEAR: Final = 8  # frames between `__enter__` and what calls it


class Precision:
    """Notes autocast regions and scalers that are on, and regions that do not do what they look like on mps."""

    def __init__(self, core: Core, note_once: Callable[..., None]) -> None:
        """`note_once` is that of `Habits`."""
        self._core = core
        self._note_once = note_once
        self._thread = threading.local()  # autocast is a state of the thread
        self._allocations_at_entry: weakref.WeakKeyDictionary[autocast, int] = weakref.WeakKeyDictionary()
        self._made_at: weakref.WeakKeyDictionary[autocast, int] = weakref.WeakKeyDictionary()  # those for the CPU

    def watched(self) -> Iterator[tuple[Any, str, Watched]]:
        """What to watch: its owner, its name, and what to tell of each call."""
        yield autocast, "__init__", self._made
        yield autocast, "__enter__", self._entered
        yield autocast, "__exit__", self._left
        yield GradScaler, "__init__", self._scaler
        yield torch.autograd, "backward", self._backward

    def _made(self, region: Any, *given: Any, **named: Any) -> Finish | None:
        device = str(given[0] if given else named.get("device_type", ""))
        enabled = bool(given[2] if len(given) > 2 else named.get("enabled", True))
        if not enabled:
            return None
        if device == "cpu":
            self._made_at[region] = self._core.current_site()
            return None

        def made(error: BaseException | None) -> None:
            if error is None:
                self._note_once("autocast", device=region.device, dtype=_dtype(region), refused=not region._enabled)

        return made

    def _entered(self, region: Any) -> None:
        if region.device == "mps":
            if region._enabled:
                self._thread.switched_on = self._compiled_site() or self._core.current_site()
        elif not region._enabled:
            if torch.is_autocast_enabled("mps"):
                outer = str(torch.get_autocast_dtype("mps")).removeprefix("torch.")
                switched_on = getattr(self._thread, "switched_on", 0)
                site = self._compiled_site()
                # A compiled function enters what was told while it was compiled; there is no `with` around it then.
                if site is not None or not (_is_in_graph(sys._getframe()) or _is_of_checkpoint(sys._getframe())):
                    self._note_once("autocast_island", switched_on, site, device=region.device, dtype=outer)
        elif region.device == "cpu":
            self._allocations_at_entry[region] = self._core.ledger_state()[0]

    def _compiled_site(self) -> int | None:
        """The line that torch.compile reads; None where it does not: the running line is then the program's."""
        read = TracingContext.extract_stack()
        if not read or read[-1].lineno is None:
            return None
        return int(self._core.site(read[-1].filename, read[-1].lineno, read[-1].name, ""))

    def _left(self, region: Any, *_: Any) -> None:
        before = self._allocations_at_entry.pop(region, None)
        if before is not None and self._core.ledger_state()[0] > before:
            made = self._made_at.get(region)  # one region may be entered at several lines
            self._note_once("autocast", 0, made, device="cpu", dtype=_dtype(region), refused=False)

    def _scaler(self, scaler: Any, *given: Any, **named: Any) -> Finish | None:
        if not (given[5] if len(given) > 5 else named.get("enabled", True)):
            return None

        def made(error: BaseException | None) -> None:
            if error is None:
                self._note_once("grad_scaler", device=str(scaler._device))

        return made

    def _backward(self, *_: Any, **__: Any) -> None:
        if torch.is_autocast_enabled("mps"):
            self._note_once("backward", autocast=str(torch.get_autocast_dtype("mps")).removeprefix("torch."))
        if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
            self._note_once("anomaly")


def _is_in_graph(frame: FrameType | None) -> bool:
    """Whether a graph that torch.compile made enters the region, and not a line of the program."""
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == "_enter_autocast":
            return True
        frame = frame.f_back
    return False


def _is_of_checkpoint(frame: FrameType | None) -> bool:
    """Whether a checkpoint enters it, which puts back what was on in forward, for mps as for the CPU."""
    while frame is not None and os.path.basename(frame.f_code.co_filename) in ("_precision.py", "autocast_mode.py"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(_CHECKPOINT)


def _dtype(region: autocast) -> str:
    return str(region.fast_dtype).removeprefix("torch.")
