"""ELF files for 64 bits: the symbols that they ask others for, whether loading them runs code, and what a shader's may.

A compiled shader may use the runtime, the checker and arithmetic. That is checked before it is loaded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

_TABLE, _DYNAMIC_TABLE = 2, 11  # kinds of sections: symbols of an object, and of a library
_INITIALISERS, _FINALISERS, _FIRST_INITIALISERS = 14, 15, 16
_DYNAMIC, _DYNAMIC_ENTRY = 6, 16
_INITIALISERS_AT, _INITIALISERS_SIZE = 25, 27  # entries of that section
_SYMBOL = struct.Struct("<IBBHQQ")
_INDIRECT = 10  # a function that is chosen by running another one
_FUNCTION = 2
_UNDEFINED = 0


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
    foreign = sorted(name for name in undefined_symbols(data, _DYNAMIC_TABLE) if _ALLOWED.fullmatch(name) is None)
    if foreign:
        return f"use of undeclared identifier '{foreign[0]}'"
    first, last, indirect = _runs_when_loaded(data)
    by_compiler = sum(name.startswith(_COMPILER_MADE) for name in _defined_functions(data))
    if first > 1 + by_compiler or last > 1 or indirect:
        return "functions that run when a program is loaded or ends are not supported"
    return ""


def undefined_symbols(data: bytes, table: int = _TABLE) -> list[str]:
    """The names that a file asks others for."""
    return [name for name, _, section in _symbols(data, table) if section == _UNDEFINED]


def _defined_functions(data: bytes) -> list[str]:
    """The names of the functions that a file defines, its local ones included."""
    return [name for name, info, section in _symbols(data, _TABLE) if section != _UNDEFINED and info & 15 == _FUNCTION]


def _runs_when_loaded(data: bytes) -> tuple[int, int, bool]:
    """How many functions run on load and on unload, and whether a symbol is resolved by running code."""
    sizes = {_INITIALISERS: 0, _FINALISERS: 0, _FIRST_INITIALISERS: 0}
    for kind, _, size, _ in _sections(data):
        if kind in sizes:
            sizes[kind] += size // 8
    indirect = any(info & 15 == _INDIRECT for _, info, _ in _symbols(data, _DYNAMIC_TABLE))
    return sizes[_INITIALISERS] + sizes[_FIRST_INITIALISERS], sizes[_FINALISERS], indirect


def defer_initialisers(data: bytes, name: str) -> bytes:
    """The file with nothing that runs when it is loaded.

    The variable `name`, two numbers of 64 bits, is given how far from it the table of those functions lies, and how
    many they are.
    """
    dynamic = next(((place, size) for kind, place, size, _ in _sections(data) if kind == _DYNAMIC), (0, 0))
    entries = {struct.unpack_from("<q", data, at)[0]: at + 8 for at in range(dynamic[0], sum(dynamic), _DYNAMIC_ENTRY)}
    if _INITIALISERS_SIZE not in entries:
        return data
    (table,), (size,) = (struct.unpack_from("<Q", data, entries[tag]) for tag in (_INITIALISERS_AT, _INITIALISERS_SIZE))
    kept = bytearray(data)
    address, place = _variable(data, name)
    struct.pack_into("<2q", kept, place, table - address, size // 8)
    struct.pack_into("<Q", kept, entries[_INITIALISERS_SIZE], 0)
    return bytes(kept)


def _variable(data: bytes, name: str) -> tuple[int, int]:
    """The address of a variable that a file defines, and its place in the file."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size = struct.unpack_from("<H", data, 58)[0]
    for kind, first, length, link in _sections(data):
        for at in range(first, first + length, _SYMBOL.size) if kind == _DYNAMIC_TABLE else ():
            named, _, _, section, address, _ = _SYMBOL.unpack_from(data, at)
            names = _sections(data)[link][1]
            if data[names + named : data.index(b"\0", names + named)].decode() == name:
                lies, offset = struct.unpack_from("<2Q", data, start + section * size + 16)
                return address, offset + address - lies
    raise ValueError(name)


def _sections(data: bytes) -> list[tuple[int, int, int, int]]:
    """Kind, place, bytes, and the section that belongs to it, of each."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<2H", data, 58)
    rows = [struct.unpack_from("<2I4Q2I2Q", data, start + at * size) for at in range(count)]
    return [(kind, place, length, link) for _, kind, _, _, place, length, link, *_ in rows]


def _symbols(data: bytes, table: int) -> Iterator[tuple[str, int, int]]:
    """Name, kind and section of each named symbol."""
    sections = _sections(data)
    for kind, start, length, link in sections:
        if kind != table:
            continue
        names = sections[link][1]
        for at in range(start + _SYMBOL.size, start + length, _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(data, at)
            if name:
                yield data[names + name : data.index(b"\0", names + name)].decode(), info, section
