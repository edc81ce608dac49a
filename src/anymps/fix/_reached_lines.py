"""Which of some lines a run reached: Python reports each line once (from 3.12 on), or the lines of a few files."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from typing import Any

_TOOL_IDS = (3, 4)  # of sys.monitoring: those that no kind of tool has for its own


class ReachedLines:
    """Notes in `found`, from `watch` on, each of these lines of files that is run, by file and line."""

    def __init__(self, lines: Mapping[str, Sequence[int]]) -> None:
        self._lines = {path: frozenset(numbers) for path, numbers in lines.items()}
        self._names = {os.path.basename(path) for path in lines}
        self._real: dict[str, str | None] = {}
        self.found: set[tuple[str, int]] = set()

    def watch(self) -> None:
        """Begin; nothing ends it. Without lines nothing happens."""
        if not self._lines:
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
            self._real[name] = real if real in self._lines else None
        return self._real[name]

    def _note(self, file: str, line: int) -> None:
        if line in self._lines[file]:
            self.found.add((file, line))

    def _monitor(self) -> None:
        monitoring: Any = vars(sys)["monitoring"]
        tool = next((number for number in _TOOL_IDS if monitoring.get_tool(number) is None), None)
        if tool is None:
            return

        def came(code: types.CodeType, line: int) -> Any:
            file = self._file(code.co_filename)
            if file is not None:
                self._note(file, line)
            return monitoring.DISABLE  # each line is reported once

        monitoring.use_tool_id(tool, "anymps")
        monitoring.register_callback(tool, monitoring.events.LINE, came)
        monitoring.set_events(tool, monitoring.events.LINE)

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """Asked at each call; frames of other files are left alone."""
        file = self._file(frame.f_code.co_filename)
        if file is None:
            return None
        self._note(file, frame.f_lineno)

        def came(frame: types.FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self._note(file, frame.f_lineno)
            return came

        return came
