"""The program's line that made a call: the innermost frame that is neither torch's nor an installed package's.

A call of backward has the line of its forward call.
"""

from __future__ import annotations

import bisect
import os
import sys
from enum import Enum, auto
from types import FrameType
from typing import Final

import torch

from anymps._paths import is_library, package_of
from anymps.record import Site
from anymps.source import quote_file

_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_ANYMPS: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep


class _Owner(Enum):
    """Whose a source file is."""

    PROGRAM = auto()
    PACKAGE = auto()
    TORCH = auto()
    OTHER = auto()
    """Ours or Python's."""


_ACCUMULATES: Final = 2**64 - 1
"""The sequence number of nodes that add up the gradient of a leaf (torch/csrc/autograd/function.h, 2.11 to 2.15)."""

_MOST_CALLS: Final = 1 << 16


class ForwardLines:
    """The lines of forward calls by autograd's sequence numbers, for the calls of their backward.

    A line is any number that stands for it. Views count: a device may have more of them for one operator than another
    has, and what autograd adds up for the input of such an operator belongs to its line on both.
    """

    def __init__(self) -> None:
        self._lines: dict[int, int] = {}
        self._sequences: list[int] = []
        """The keys of `_lines`, sorted."""

    def add(self, sequence: int, line: int) -> None:
        """Note the line of a call that can have made the node `sequence`, the newest; what made it came first."""
        if sequence in self._lines:
            return
        if len(self._sequences) >= _MOST_CALLS:
            for old in self._sequences[: _MOST_CALLS // 2]:
                del self._lines[old]
            del self._sequences[: _MOST_CALLS // 2]
        self._lines[sequence] = line
        bisect.insort(self._sequences, sequence)

    def line_of(self, sequence: int, otherwise: int) -> int:
        """The line of the node `sequence`, or of the call before it; `otherwise` if there is none."""
        place = bisect.bisect_right(self._sequences, sequence)
        return otherwise if sequence == _ACCUMULATES or not place else self._lines[self._sequences[place - 1]]


class Lines:
    """Finds lines, each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str], Site] = {}
        self._owners: dict[str, _Owner] = {}

    def now(self) -> tuple[Site | None, bool]:
        """The line that runs, None in a thread without one; and whether it called torch itself, not through torch.

        Of a program that is itself an installed package, the innermost line outside torch.
        """
        frame: FrameType | None = sys._getframe(1)
        in_package: FrameType | None = None
        direct = True
        while frame is not None:
            file = frame.f_code.co_filename
            owner = self._owner(file)
            if owner is _Owner.PROGRAM:
                return self._site(frame), direct
            if owner is _Owner.PACKAGE and in_package is None:
                in_package = frame
            if owner is _Owner.TORCH and in_package is None and not file.startswith(_DISPATCHING):
                direct = False
            frame = frame.f_back
        return (self._site(in_package) if in_package is not None else None), direct

    def _owner(self, file: str) -> _Owner:
        owner = self._owners.get(file)
        if owner is None:
            if file.startswith((_ANYMPS, "<frozen", "<string>")):
                owner = _Owner.OTHER
            elif file.startswith(_TORCH):
                owner = _Owner.TORCH
            elif package_of(file):
                owner = _Owner.PACKAGE
            else:
                owner = _Owner.OTHER if is_library(file) else _Owner.PROGRAM
            self._owners[file] = owner
        return owner

    def _site(self, frame: FrameType) -> Site:
        code = frame.f_code
        key = (code.co_filename, frame.f_lineno, code.co_name)
        site = self._known.get(key)
        if site is None:
            text = quote_file(code.co_filename, frame.f_lineno).source
            site = self._known[key] = Site(code.co_filename, frame.f_lineno, code.co_name, text)
        return site


_DISPATCHING: Final = (
    os.path.join(_TORCH, "_tensor.py"),
    os.path.join(_TORCH, "utils", "_python_dispatch.py"),
    os.path.join(_TORCH, "utils", "_device.py"),
    os.path.join(_TORCH, "utils", "_contextlib.py"),
    os.path.join(_TORCH, "overrides.py"),
    os.path.join(_TORCH, "_ops.py"),
    os.path.join(_TORCH, "_compile.py"),
    os.path.join(_TORCH, "_dynamo", "eval_frame.py"),
)
"""Torch's own files that every call passes through."""
