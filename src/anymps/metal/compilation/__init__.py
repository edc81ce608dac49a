"""From a shader to a file that can be loaded: refusals, the compiler and its errors, the cache."""

from anymps.metal.compilation._cache import cache_directory, find_or_make
from anymps.metal.compilation._compile import compile_checker, compile_runtime, compile_shader
from anymps.metal.compilation._compiler import find_compiler, tool_key
from anymps.metal.compilation._diagnostics import UnsetVariable
from anymps.metal.compilation._elf import undefined_symbols
from anymps.metal.compilation._preprocess import SOURCE_NAME
