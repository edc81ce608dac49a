"""A plugin of pytest for tests/sanitized.py: it has the runtime of Metal kernels compiled under a sanitizer.

Shaders are compiled as ever: what their loops do is the program's, and those of the checked form call the checker by
the names of a sanitizer's own functions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anymps.metal.compilation import _compile
from anymps.metal.compilation._compiler import Compiler

FLAGS = "ANYMPS_TESTS_RUNTIME_FLAGS"  # what g++ is to compile the runtime with

_plainly, _find = _compile._compile_own, _compile.find_compiler
_own = threading.local()  # shaders are compiled beside the runtime, on another thread


def compile_own(name: str, sources: Path, flags: Sequence[str]) -> Path:
    """As the compilation does it, with further flags for the runtime."""
    _own.of_runtime = name == "runtime"
    try:
        return _plainly(name, sources, flags)
    finally:
        _own.of_runtime = False


def find_compiler() -> Compiler:
    """The compiler for what is compiled on this thread."""
    if not getattr(_own, "of_runtime", False):
        return _find()
    return replace(_find(), command=("g++", *os.environ[FLAGS].split()), is_clang=False)


_compile._compile_own = compile_own
_compile.find_compiler = find_compiler  # type: ignore[assignment]
