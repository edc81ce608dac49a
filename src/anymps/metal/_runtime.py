"""The runtime and compiled shaders, loaded into this process."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from anymps._errors import UsageError
from anymps.metal.compilation import UnsetVariable, compile_runtime
from anymps.metal.translation import INITIALISERS

_initialising = threading.Lock()
_initialised: set[int] = set()  # handles of libraries, which stay loaded


class KernelEntry(ctypes.Structure):
    """`anymps_rt::Kernel` of shim/msl/runtime.h.

    `written`: the buffers that it may write, a bit each. A checked one has its `parameters`, by buffer, and the `unset`
    variables that its compiler has found.
    """

    written: int = 0
    parameters: Mapping[int, Parameter] = {}
    unset: Sequence[UnsetVariable] = ()

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("form", ctypes.c_int),
        ("plain", ctypes.c_void_p),
        ("thread", ctypes.c_void_p),
        ("group", ctypes.c_void_p),
        ("shared_bytes", ctypes.CFUNCTYPE(ctypes.c_uint)),
        ("max_threads", ctypes.c_uint),
        ("buffers", ctypes.c_uint),
        ("axis", ctypes.c_int),
        ("together", ctypes.c_int),
    )


class Parameter(ctypes.Structure):
    """What a buffer of a checked kernel is made of: `Parameter` of shim/msl/launch.h."""

    _fields_ = (
        ("kernel", ctypes.c_uint),
        ("buffer", ctypes.c_uint),
        ("letter", ctypes.c_char),
        ("count", ctypes.c_ubyte),
        ("many", ctypes.c_ubyte),
        ("atomic", ctypes.c_ubyte),
    )


class Report(ctypes.Structure):
    """What a launch came to: `Report` of runtime/launch.h."""

    _fields_ = (
        ("signal", ctypes.c_int),
        ("known", ctypes.c_int),
        ("position", ctypes.c_uint * 3),
        ("address", ctypes.c_void_p),
    )


RAISED = 1000  # in the place of a signal: `kRaised` of runtime/ask.h
NO_STACKS = 1001  # likewise: `kNoStacks` of runtime/guard.h
_OF_PYTHON = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch", "PyErr_Restore")
SECONDS_VARIABLE = "ANYMPS_SHADER_SECONDS"
PLAIN, GROUPS, LANES = 0, 2, 3  # of `anymps_rt::Form`
Triple = ctypes.c_uint * 3
FAULTS = {
    signal.SIGSEGV: "read or wrote memory that does not exist",
    signal.SIGBUS: "read or wrote memory that does not exist",
    signal.SIGFPE: "divided an integer by zero, or the smallest one by -1",
    signal.SIGILL: "divided an integer by a constant zero, or reached __builtin_trap",
    signal.SIGTRAP: "divided an integer by a constant zero, or reached __builtin_trap",
    signal.SIGINT: "was interrupted",
}


def shader_seconds() -> float:
    """How long a launch may take, in seconds; 0: as long as it likes. Raises UsageError for what is no such number."""
    text = os.environ.get(SECONDS_VARIABLE, "").strip() or "600"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{SECONDS_VARIABLE}={text} is not a number of seconds: name one, or 0 for no limit")
    return seconds


@functools.cache
def runtime() -> ctypes.CDLL:
    """The runtime, compiled at first use; its names are there for the shaders that are loaded after it.

    Raises BuildError without a compiler or a place to keep the result.
    """
    library = ctypes.CDLL(str(compile_runtime()), mode=ctypes.RTLD_GLOBAL)
    functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _OF_PYTHON]
    library.anymps_rt_python((ctypes.c_void_p * len(functions))(*functions))
    ctypes.c_double.in_dll(library, "anymps_rt_limit").value = shader_seconds()
    library.anymps_rt_launch_groups.restype = ctypes.c_int
    library.anymps_rt_launch_groups.argtypes = (
        ctypes.POINTER(KernelEntry),
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_uint),
        ctypes.POINTER(ctypes.c_uint),
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_uint,
        ctypes.POINTER(Report),
    )
    library.anymps_rt_last_report.restype = None
    library.anymps_rt_last_report.argtypes = (ctypes.POINTER(Report),)
    return library


def raise_interrupt(report: Report) -> None:
    """Raises what a signal's handler of the program raised while a kernel ran, and KeyboardInterrupt after a Ctrl-C."""
    if report.signal == RAISED:
        again = ctypes.PyDLL(runtime()._name).anymps_rt_raise
        again.restype = None
        again()
    if report.signal == signal.SIGINT:
        raise KeyboardInterrupt


def load_kernels(path: Path) -> tuple[ctypes.CDLL, dict[str, KernelEntry | str]]:
    """A compiled shader and its kernels by name; of one that cannot be used here, what is said of it.

    Keep the library as long as the kernels are used.
    """
    runtime()
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    _initialise(library)
    count = ctypes.c_uint.in_dll(library, "anymps_kernel_count").value
    table = (KernelEntry * max(count, 1)).in_dll(library, "anymps_kernels")
    refusals = (ctypes.c_char_p * max(count, 1)).in_dll(library, "anymps_refusals")
    written = (ctypes.c_uint * max(count, 1)).in_dll(library, "anymps_written")
    kernels: dict[str, KernelEntry | str] = {}
    for i in range(count):
        refusal: bytes | None = refusals[i]
        entry = table[i]
        entry.written = written[i]
        kernels[entry.name.decode()] = entry if refusal is None else refusal.decode()
    if hasattr(library, "anymps_parameter_count"):
        _describe(library, [table[i].name.decode() for i in range(count)], kernels)
    return library, kernels


def _initialise(library: ctypes.CDLL) -> None:
    """Gives variables outside of functions their values: constructors of the program, which run as a kernel does.

    Once for each library that the process holds, however often and by how many threads it is loaded.
    Raises RuntimeError for one that faults, or does not end.
    """
    with _initialising:
        if library._handle not in _initialised:
            _run_initialisers(library)
            _initialised.add(library._handle)


def _run_initialisers(library: ctypes.CDLL) -> None:
    place = (ctypes.c_long * 2).in_dll(library, INITIALISERS)
    table = (ctypes.c_void_p * place[1]).from_address(ctypes.addressof(place) + place[0])
    for function in table:
        entry, report = KernelEntry(name=b"initializer", form=PLAIN, plain=function), Report()
        one = Triple(1, 1, 1)
        if runtime().anymps_rt_launch_groups(entry, None, one, one, 0, 0, 1, report):
            raise_interrupt(report)
            ended = f"ran for more than {shader_seconds():g} s and was stopped ({SECONDS_VARIABLE} sets another limit)"
            what = FAULTS.get(signal.Signals(report.signal), ended)
            raise RuntimeError(
                f"anymps: a constructor of a variable outside of the kernels {what}. Metal wants a value that the "
                "compiler computes there: make the constructor constexpr"
            )


def _describe(library: ctypes.CDLL, names: Sequence[str], kernels: Mapping[str, KernelEntry | str]) -> None:
    """Gives the kernels of a checked shader what is known of them besides."""
    described = ctypes.c_uint.in_dll(library, "anymps_parameter_count").value
    parameters = (Parameter * max(described, 1)).in_dll(library, "anymps_parameters")
    unset = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "anymps_unset"))))
    for number, name in enumerate(names):
        entry = kernels[name]
        if isinstance(entry, KernelEntry):
            entry.parameters = {one.buffer: one for one in parameters[:described] if one.kernel == number}
            entry.unset = tuple(UnsetVariable(*one) for one in unset.get(name, ()))
