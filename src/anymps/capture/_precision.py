"""Where a program chooses its precision: autocast regions, gradient scalers, and what runs under them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler

from anymps.capture._core import Core

Finish = Callable[[BaseException | None], object]
Watched = Callable[..., Finish | None]


class NoteOnce(Protocol):
    """Writes a mark for the running line, once a line; `other` is another line that belongs to it."""

    def __call__(self, what: str, other: int = 0, /, **facts: object) -> None:
        """Write it."""


class Precision:
    """Notes autocast regions and scalers that are on, and regions that do not do what they look like on mps."""

    def __init__(self, core: Core, note_once: NoteOnce) -> None:
        self._core = core
        self._note_once = note_once
        self._thread = threading.local()  # autocast is a state of the thread
        self._births: weakref.WeakKeyDictionary[autocast, int] = weakref.WeakKeyDictionary()

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
        if not enabled or device == "cpu":
            return None

        def made(error: BaseException | None) -> None:
            if error is None:
                self._note_once("autocast", device=region.device, dtype=_dtype(region), refused=not region._enabled)

        return made

    def _entered(self, region: Any) -> None:
        if region.device == "mps":
            if region._enabled:
                self._thread.switched_on = self._core.current_site()
        elif not region._enabled:
            if torch.is_autocast_enabled("mps"):
                outer = str(torch.get_autocast_dtype("mps")).removeprefix("torch.")
                switched_on = getattr(self._thread, "switched_on", 0)
                self._note_once("autocast_island", switched_on, device=region.device, dtype=outer)
        elif region.device == "cpu":
            self._births[region] = self._core.ledger_state()[0]

    def _left(self, region: Any, *_: Any) -> None:
        births = self._births.pop(region, None)
        if births is not None and self._core.ledger_state()[0] > births:
            self._note_once("autocast", device="cpu", dtype=_dtype(region), refused=False)

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


def _dtype(region: autocast) -> str:
    return str(region.fast_dtype).removeprefix("torch.")
