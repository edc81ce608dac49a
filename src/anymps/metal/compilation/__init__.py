"""From a shader to a file that can be loaded: refusals, the compiler and its errors, the cache.

A name is loaded when it is first used: code that only manages the cache does not load the translation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.metal.compilation._cache import cache_directory, find_or_make
    from anymps.metal.compilation._compile import compile_checker, compile_runtime, compile_shader, runs_loops
    from anymps.metal.compilation._compiler import find_compiler, tool_key
    from anymps.metal.compilation._diagnostics import UnsetVariable
    from anymps.metal.compilation._elf import undefined_symbols
    from anymps.metal.compilation._preprocess import SOURCE_NAME

if not TYPE_CHECKING:
    __getattr__ = lazy_face(
        __name__,
        {
            "_cache": "cache_directory find_or_make",
            "_compile": "compile_checker compile_runtime compile_shader runs_loops",
            "_compiler": "find_compiler tool_key",
            "_elf": "undefined_symbols",
            "_preprocess": "SOURCE_NAME",
            "_diagnostics": "UnsetVariable",
        },
    )
