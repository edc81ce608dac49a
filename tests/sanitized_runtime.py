"""A plugin of pytest for tests/sanitized.py: it has the runtime of Metal kernels compiled under a sanitizer.

Shaders are compiled as ever: what their loops do is the program's, and those of the checked form call the checker by
the names of a sanitizer's own functions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anymps.metal.compilation import _compile

FLAGS = "ANYMPS_TESTS_RUNTIME_FLAGS"  # what g++ is to compile the runtime with

_plainly, _find = _compile._compile_own, _compile.find_compiler


def compile_own(name: str, sources: Path, flags: Sequence[str]) -> Path:
    """As the compilation does it, with further flags for the runtime."""
    if name != "runtime":
        return _plainly(name, sources, flags)
    compiler = replace(_find(), command=("g++", *os.environ[FLAGS].split()), is_clang=False)
    _compile.find_compiler = lambda: compiler  # type: ignore[assignment]
    try:
        return _plainly(name, sources, flags)
    finally:
        _compile.find_compiler = _find


_compile._compile_own = compile_own
