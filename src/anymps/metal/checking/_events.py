"""The checker's interface for Python, and the structures of checking/*.h that it reports with."""

from __future__ import annotations

import ctypes
import functools
from enum import IntEnum

from anymps.metal._runtime import runtime
from anymps.metal.compilation import compile_checker

MOST_EVENTS = 256
_FRAMES = 12


class Kind(IntEnum):
    """What is wrong: `Kind` of checking/events.h."""

    OUTSIDE = 0
    WILD = 1
    RACE = 2
    SAME_VALUE = 3
    PLACES = 4
    MISSING = 5
    UNINITIALISED = 6
    SHIFT = 7
    DIVISION = 8
    INDEX = 9
    LANE = 10
    MATRIX = 11
    SIMD_MISSING = 12
    NARROW = 13
    MISALIGNED = 14
    LOST_ADD = 15
    PARTIAL_SUM = 16


class Area(ctypes.Structure):
    """Memory that a kernel may touch: `Area` of checking/arena.h."""

    _fields_ = (
        ("host", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("start", ctypes.c_void_p),
        ("fixed", ctypes.c_uint64),
        ("stray", ctypes.c_int64),
        ("strays", ctypes.c_uint64),
    )


class Event(ctypes.Structure):
    """One kind of fault at one place of the code, with its first case: `Event` of checking/events.h."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("how", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("area", ctypes.c_int),
        ("offset", ctypes.c_int64),
        ("value", ctypes.c_int64),
        ("thread", ctypes.c_uint * 3),
        ("group", ctypes.c_uint * 3),
        ("other", ctypes.c_uint * 3),
        ("other_how", ctypes.c_int),
        ("count", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("pcs", ctypes.c_uint64 * _FRAMES),
        ("text", ctypes.c_char * 64),
    )


@functools.cache
def checker() -> ctypes.CDLL:
    """The checker, compiled at first use; its names are there for the checked shaders that are loaded after it.

    Raises BuildError without a compiler or a place to keep the result.
    """
    runtime()
    library = ctypes.CDLL(str(compile_checker()), mode=ctypes.RTLD_GLOBAL)
    library.anymps_check_begin.restype = ctypes.c_int
    library.anymps_check_begin.argtypes = (
        ctypes.POINTER(Area),
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_void_p,
    )
    library.anymps_check_pause.restype = None
    library.anymps_check_pause.argtypes = ()
    library.anymps_check_end.restype = ctypes.c_uint
    library.anymps_check_end.argtypes = (ctypes.POINTER(Event), ctypes.c_uint)
    return library
