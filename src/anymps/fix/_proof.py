"""What `fix` notes in the process of a run: the losses, whether mps was used, and which lines were reached."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymps.runs import Observer, Order
from anymps.runs.inside import OF_ANYMPS, watch_losses

if TYPE_CHECKING:
    from torch import Tensor

    from anymps.device import State


@dataclass
class Proof(Observer):
    """Notes what two runs are compared by, and which lines of the `changed` files were reached.

    With `draws_on_cpu`, mps draws the random numbers that the CPU would.
    """

    changed: Collection[str]
    draws_on_cpu: bool = False

    def start(self, order: Order, folder: Path, state: State | None) -> None:
        """Watch backward and lines."""

        self._on_mps = state is not None
        self._is_in_memory = state is not None and state.virtual and state.substrate == "host"
        self._losses: list[float | Tensor] = []
        if self.draws_on_cpu:
            from anymps.compare.inside import draw_on_cpu

            draw_on_cpu("mps")
        watch_losses(self._note_losses)
        self._reached = ReachedLines(self.changed)
        self._reached.watch()

    def facts(self, ending: Mapping[str, object]) -> dict[str, object]:
        """Values that backward was called on, lines that were reached, and the files of the program's modules.

        `used` says whether anything was on mps.
        """
        import torch

        return {
            "losses": [loss if isinstance(loss, float) else float(loss.item()) for loss in self._losses],
            "reached": sorted(self._reached.found),
            "used": self._on_mps and torch.mps.driver_allocated_memory() > 0,
            "modules": _modules(),
        }

    def _note_losses(self, losses: Sequence[Tensor]) -> None:
        self._losses += [self._value(loss.detach()) for loss in losses]

    def _value(self, loss: Tensor) -> float | Tensor:
        """A loss, read at once from the virtual device's memory: one that is kept changes the blocks handed out next.

        Elsewhere reading waits for the device, so it is kept.
        """
        if loss.device.type != "mps" or not self._is_in_memory:
            return loss
        import torch

        content = bytearray(ctypes.string_at(loss.data_ptr(), loss.itemsize))
        return float(torch.frombuffer(content, dtype=loss.dtype).item())


def _modules() -> list[str]:
    """The files of what was imported, installed packages apart."""
    files = {str(getattr(module, "__file__", None)) for module in list(sys.modules.values())}
    installed = (OF_ANYMPS, sys.prefix, sys.base_prefix)
    return sorted(os.path.realpath(file) for file in files if file.endswith(".py") and not file.startswith(installed))


_TOOL_IDS = (3, 4)  # of sys.monitoring: those that no kind of tool has for its own


class ReachedLines:
    """Notes in `found`, from `watch` on, each line of some files that is run, by file and line."""

    def __init__(self, files: Collection[str]) -> None:
        self._files = frozenset(files)
        self._names = {os.path.basename(path) for path in files}
        self._real: dict[str, str | None] = {}
        self.found: set[tuple[str, int]] = set()

    def watch(self) -> None:
        """Begin; nothing ends it. Without files nothing happens."""
        if not self._files:
            return
        if sys.version_info >= (3, 12):
            self._monitor()
            return
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _file(self, name: str) -> str | None:
        """The watched file that a code object is of."""
        if name not in self._real:
            real = os.path.realpath(name) if os.path.basename(name) in self._names else ""
            self._real[name] = real if real in self._files else None
        return self._real[name]

    def _monitor(self) -> None:
        monitoring: Any = vars(sys)["monitoring"]
        tool = next((number for number in _TOOL_IDS if monitoring.get_tool(number) is None), None)
        if tool is None:
            return

        def came(code: types.CodeType, line: int) -> Any:
            file = self._file(code.co_filename)
            if file is not None:
                self.found.add((file, line))
            return monitoring.DISABLE  # each line is reported once

        monitoring.use_tool_id(tool, "anymps")
        monitoring.register_callback(tool, monitoring.events.LINE, came)
        monitoring.set_events(tool, monitoring.events.LINE)

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """Asked at each call; frames of other files are left alone."""
        file = self._file(frame.f_code.co_filename)
        if file is None:
            return None
        self.found.add((file, frame.f_lineno))

        def came(frame: types.FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self.found.add((file, frame.f_lineno))
            return came

        return came
