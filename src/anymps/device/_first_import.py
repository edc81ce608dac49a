"""Notices the program's first import of torch, which this process has already loaded for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import FrameType
from typing import Any

_call: Callable[[], None] | None = None


class _WatchedSpec(ModuleSpec):
    """The spec of a loaded module. Every import of one asks its spec whether the module is still being loaded."""

    @property
    def _initializing(self) -> bool:
        if _call is not None and _is_programs(sys._getframe(1)):
            _end()
        return False

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        """Python sets it while it loads a module again; there is nothing to keep."""


def at_first_import(call: Callable[[], None]) -> None:
    """Have the program's first import of torch, or of a module of torch's, call this once."""
    global _call
    _call = call
    for spec in _specs(ModuleSpec):
        spec.__class__ = _WatchedSpec


def _end() -> None:
    global _call
    call, _call = _call, None
    for spec in _specs(_WatchedSpec):
        spec.__class__ = ModuleSpec
    if call is not None:
        call()


def _specs(kind: type) -> list[Any]:
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "torch"]
    specs = [getattr(module, "__dict__", {}).get("__spec__") for module in modules]
    return [spec for spec in specs if type(spec) is kind]


def _is_programs(frame: FrameType | None) -> bool:
    """Whether the import is a line's that is neither ours nor torch's own."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    own = tuple(os.path.dirname(sys.modules[name].__file__ or "") + os.sep for name in ("torch", "anymps"))
    return frame is not None and not frame.f_code.co_filename.startswith(own)
