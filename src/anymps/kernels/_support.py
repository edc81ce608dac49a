"""The functions that compiled kernels call: those of the runtime, of the support library and of the C library."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from pathlib import Path

from anymps._errors import BuildError
from anymps.metal import SHIM, cache_directory, find_compiler, find_or_make, runtime, tool_key

_SOURCE = Path(__file__).with_name("support.cpp")
_RUNTIME = ("anymps_rt_lane", "anymps_rt_thread", "anymps_rt_shared")
# Names that LLVM's code generator makes up by itself.
_CONVERSIONS = {
    "__truncsfbf2": "anymps_k_to_bfloat",
    "__truncdfbf2": "anymps_k_double_to_bfloat",
    "__truncsfhf2": "anymps_k_to_half",
    "__truncdfhf2": "anymps_k_double_to_half",
    "__extendhfsf2": "anymps_k_from_half",
    "__gnu_f2h_ieee": "anymps_k_to_half",
    "__gnu_h2f_ieee": "anymps_k_from_half",
}
_FLOATS = (
    "acos asin atan atan2 ceil cos cosh exp exp10 exp2 floor fma fmax fmin fmod ldexp log log10 log2 pow rint round "
    "roundeven sin sincos sinh sqrt tan tanh trunc"
)
_LIBC = (*(f"{name}f" for name in _FLOATS.split()), "memcpy", "memset", "memmove")


@functools.cache
def support() -> ctypes.CDLL:
    """The support library, compiled at first use. Raises BuildError without a compiler."""
    compiler = find_compiler()
    key = hashlib.sha256(f"{tool_key(compiler)}\0".encode() + _SOURCE.read_bytes()).hexdigest()[:16]

    def make(library: Path) -> None:
        flags = [*compiler.shader_flags(), "-shared", f"-I{SHIM}", str(_SOURCE), "-o", str(library)]
        answer = compiler.run(flags)
        if answer.returncode != 0:
            raise BuildError(f"the support of compiled Metal kernels cannot be compiled:\n{answer.stderr.strip()}")

    return ctypes.CDLL(str(find_or_make(cache_directory("support"), key, ".so", make)))


def address_of(name: str) -> int | None:
    """Where a function lies that a compiled kernel may call; None if it may not, or there is none."""
    if name.startswith("anymps_rt_"):
        return _address(runtime(), name) if name in _RUNTIME else None
    if name.startswith("anymps_k_"):
        return _address(support(), name)
    if name in _CONVERSIONS:
        return _address(support(), _CONVERSIONS[name])
    return _address(_libm(), name) if name in _LIBC else None


def _address(library: ctypes.CDLL, name: str) -> int | None:
    function = getattr(library, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


@functools.cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6")  # which libc depends on: its names are found, too
