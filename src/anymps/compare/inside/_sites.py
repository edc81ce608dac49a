"""The program's line that made a call: the innermost frame that is neither torch's nor an installed package's."""

from __future__ import annotations

__all__ = ["Lines"]

import linecache
import os
import sys
import sysconfig
from types import FrameType
from typing import Final

import torch

from anymps.compare._trace import Site

_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_ANYMPS: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib") + os.sep
_PACKAGES: Final = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


class Lines:
    """Finds lines, each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str], Site] = {}
        self._kinds: dict[str, int] = {}

    def now(self) -> tuple[Site | None, bool]:
        """The line that runs, None in a thread without one; and whether it called torch itself, not through torch.

        Of a program that is itself an installed package, the innermost line outside torch.
        """
        frame: FrameType | None = sys._getframe(1)
        in_package: FrameType | None = None
        direct = True
        while frame is not None:
            kind = self._kind(frame.f_code.co_filename)
            if kind == 0:
                return self._site(frame), direct
            if kind == 1 and in_package is None:
                in_package = frame
            if kind == 2 and in_package is None and not frame.f_code.co_filename.startswith(_DISPATCHING):
                direct = False
            frame = frame.f_back
        return (self._site(in_package) if in_package is not None else None), direct

    def _kind(self, file: str) -> int:
        """0: the program's, 1: an installed package's, 2: torch's, 3: ours and Python's."""
        kind = self._kinds.get(file)
        if kind is None:
            if file.startswith((_ANYMPS, "<frozen", "<string>")):
                kind = 3
            elif file.startswith(_TORCH):
                kind = 2
            elif any(folder in file for folder in _PACKAGES):
                kind = 1
            else:
                kind = 3 if file.startswith(_STANDARD_LIBRARY) else 0
            self._kinds[file] = kind
        return kind

    def _site(self, frame: FrameType) -> Site:
        code = frame.f_code
        key = (code.co_filename, frame.f_lineno, code.co_name)
        site = self._known.get(key)
        if site is None:
            text = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
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
