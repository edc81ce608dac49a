"""Lines of the user's code by Python frames: the numbers that a recording without the native core gives them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import NamedTuple


class _Code(NamedTuple):
    internal: bool
    file: str
    function: str


class Sites:
    """Numbers lines from 1. The rules are those of the native core (call_sites.cpp)."""

    def __init__(self, folders: Sequence[str]) -> None:
        """`folders`: the beginnings of paths whose files are never the user's."""
        self._internal = ("<frozen ", "<__array_function__", *folders)
        self._codes: dict[CodeType, _Code] = {}  # holds them, so that no code's identity is used twice
        self._known: dict[tuple[CodeType, int, CodeType | None], int] = {}
        self._named: dict[tuple[str, int, str], int] = {}
        self._new: list[tuple[int, str, int, str, str]] = []
        self._count = 0

    def is_internal(self, file: str) -> bool:
        """Whether a file is torch's or anymps' own, hence no place in the user's code."""
        return file.startswith(self._internal)

    def current(self, *, in_backward: bool = False) -> int:
        """The line of the user's code that runs, 0 where a thread has none, as the autograd engine's.

        `in_backward`: only frames of the user's own backward count, not those outside of the engine.
        """
        frame: FrameType | None = sys._getframe(1)
        via: CodeType | None = None
        while frame is not None:
            code = frame.f_code
            facts = self._codes.get(code) or self._facts(code)
            if not facts.internal:
                return self._number(code, frame.f_lineno, via)
            if in_backward and facts.function == "_engine_run_backward":
                return 0
            # A mode, such as a default device, stands between an operator and the function of torch that called it.
            if via is None and facts.function != "__torch_function__" and "/torch/" in facts.file:
                via = code
            frame = frame.f_back
        return 0

    def number(self, file: str, line: int, function: str, via: str) -> int:
        """The number of a line that is known by its name."""
        key = (file, line, function)
        if key not in self._named:
            self._named[key] = self._add(file, line, function, via)
        return self._named[key]

    def take_new(self) -> list[tuple[int, str, int, str, str]]:
        """`(id, file, line, function, via)` of the lines numbered since the last call."""
        new, self._new = self._new, []
        return new

    def _number(self, code: CodeType, line: int, via: CodeType | None) -> int:
        key = (code, line, via)
        number = self._known.get(key)
        if number is None:
            facts = self._codes[code]
            number = self._add(facts.file, line, facts.function, "" if via is None else _short_name(self._codes[via]))
            self._known[key] = number
        return number

    def _add(self, file: str, line: int, function: str, via: str) -> int:
        self._count += 1
        self._new.append((self._count, file, line, function, via))
        return self._count

    def _facts(self, code: CodeType) -> _Code:
        facts = _Code(self.is_internal(code.co_filename), code.co_filename, code.co_name)
        self._codes[code] = facts
        return facts


def _short_name(code: _Code) -> str:
    at = code.file.rfind("/torch/")
    return f"{code.file if at < 0 else code.file[at + 1 :]}:{code.function}"
