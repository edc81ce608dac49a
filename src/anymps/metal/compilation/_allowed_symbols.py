"""The symbols that a compiled shader may use: runtime, checker and arithmetic. Checked before it is loaded."""

from __future__ import annotations

import re
from pathlib import Path

from anymps.metal.compilation._elf import DYNAMIC_TABLE, defined_functions, runs_when_loaded, undefined_symbols


def _either(names: str) -> str:
    return names.replace(" ", "|")


_RUNTIME = "barrier chain group lane shared simd thread"
_CHECKER = "barrier called calls constant lane matrix returns row shared simd simd_barrier thread"
_MATHS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor "
    "fma fmax fmin fmod frexp hypot ilogb ldexp lgamma log log10 log1p log2 lrint lround modf nearbyint nextafter pow "
    "remainder rint round scalbn sin sincos sinh sqrt tan tanh tgamma trunc"
)
_ALLOWED = re.compile(
    rf"anymps_rt_(?:{_either(_RUNTIME)})|anymps_check_(?:{_either(_CHECKER)})|(?:{_either(_MATHS)})f?"
    r"|__tsan_\w+|__ubsan_handle_\w+|mem(?:cpy|move|set|cmp)|_ZGV\w+"
    r"|__gmon_start__|_ITM_\w+|__cxa_finalize|__cxa_atexit|__dso_handle|__stack_chk_fail"
    r"|__(?:extend|trunc|fix|fixuns|float|floatun|div|mod|udiv|umod|mul|gnu)[a-z0-9_]+|__(?:eq|ne|lt|le|gt|ge|unord)hf2"
)

# A shader's own functions have mangled names, which begin with _Z.
_COMPILER_MADE = ("_GLOBAL__sub_I_", "_sub_I_", "tsan.module_ctor")


def why_refused(library: Path) -> str:
    """What a library asks for, or does, that no shader has to; empty if there is nothing.

    The loader has a function of its own, and the compiler one for constants that are computed, or for a sanitizer.
    """
    data = library.read_bytes()
    foreign = sorted(name for name in undefined_symbols(data, DYNAMIC_TABLE) if _ALLOWED.fullmatch(name) is None)
    if foreign:
        return f"use of undeclared identifier '{foreign[0]}'"
    first, last, indirect = runs_when_loaded(data)
    by_compiler = sum(name.startswith(_COMPILER_MADE) for name in defined_functions(data))
    if first > 1 + by_compiler or last > 1 or indirect:
        return "functions that run when a program is loaded or ends are not supported"
    return ""
