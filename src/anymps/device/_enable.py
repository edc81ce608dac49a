"""Switches the device on: the real one if there is one, otherwise the virtual one."""

from __future__ import annotations

import atexit
import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from anymps._errors import BuildError, EnableError, RequireError
from anymps._settings import asked_for, set_variable, variable_of
from anymps._text import kernels_of, tell
from anymps.device._first_import import at_first_import
from anymps.device._gpus import settle_accuracy, take_gpu, too_small
from anymps.device._launched import (
    check_kernels_again,
    kernels_asked_for,
    offer_calls,
    open_real_kernels,
)
from anymps.device._real_mac import hazards_of, this_mac
from anymps.device._rule_tables import machine, rule_tables
from anymps.device._start_method import SYSTEM, choose_start_method, install_start_method
from anymps.mac import DEFAULT_MAC, Mac, parse_mac
from anymps.rules import check_supported, installed_torch
from anymps.rules.faults import elsewhere, hazard_table, hazards, hazards_with_kernels

if TYPE_CHECKING:
    import torch

    from anymps.device._gpus import Gpu
    from anymps.device._native import NativeCore
    from anymps.kernels import KernelLibrary, Metallib
    from anymps.rules import TorchVersion
    from anymps.rules.faults import Hazard

FALLBACK_VARIABLE = variable_of("fallback")
# What `substrate` may be, each a file `native/device/<name>_substrate.cpp`, with what the banner says of it.
SUBSTRATES = {
    "host": "computed on this machine's CPU",
    "cuda": "computed on an NVIDIA GPU",
    "shape": "shapes only, nothing is computed",
}


@dataclass(frozen=True)
class State:
    """What this process has.

    `virtual` tells a device made here from a Mac's own; `mac` is the Mac that the virtual device plays (None on a real
    one); `fallback` whether operators without a kernel run on the CPU; `torch` the installed version; `substrate` is
    `host`, `cuda` where the NVIDIA GPU `gpu` computes, or `shape` where tensors have no values; `cuda_as_mps` whether
    mps answers for CUDA; `kernels` is `real` where PyTorch's own kernels compute what their launches are described for,
    else `cpu`; `kernels_torch` is the release of these kernels, such as 2.15.0, else empty.
    """

    virtual: bool
    mac: Mac | None
    fallback: bool
    torch: str
    substrate: str = "host"
    cuda_as_mps: bool = False
    kernels: str = "cpu"
    kernels_torch: str = ""
    gpu: Gpu | None = None

    @property
    def kernels_named(self) -> str:
        """What a sentence calls the kernels: whose they are, where not the installed torch's."""
        return kernels_of(self.kernels_torch, self.torch)


_enabling = threading.Lock()
_state: State | None = None
_native: NativeCore | None = None
_hazards: tuple[Hazard, ...] = ()
_when_on: list[Callable[[], None]] = []


def call_when_enabled(call: Callable[[], None]) -> None:
    """Have `enable` call this once, when the device is on."""
    _when_on.append(call)


def state() -> State | None:
    """What `enable` has set up, or None before it was called."""
    return _state


def is_virtual() -> bool:
    """True if `mps` is the virtual device; False on a real Mac, or before `enable`."""
    return _state is not None and _state.virtual


def native() -> NativeCore:
    """The native core. On a real Mac it is the recorder alone, built or loaded at the first call.

    Raises EnableError before `enable`, and BuildError there without a compiler.
    """
    global _native
    if _native is None:
        if _state is None:
            raise EnableError("anymps: the mps device is not switched on; call anymps.enable() first")
        with _enabling:
            if _native is None:
                core = _load_core()
                core.configure(rule_tables(check_supported(_state.torch)))
                core.set_hazards(hazard_table((*_hazards, *elsewhere(_hazards))))
                _native = core
    return _native


def metal_kernels(release: str | None = None) -> KernelLibrary:
    """The Metal kernels that were added with ``anymps kernels add``, as a library of callables.

    A kernel is called like one of ``torch.mps.compile_shader``: ``kernels.abs_dense_float_float(out, x, 8,
    threads=2)``. Pass its buffers in order or by name, and structs as dicts. `release` is the release of torch; the
    default is the installed one. Raises KernelsError if none were added, llvmlite is missing or a kernel cannot run
    here, EnableError without the device, and BuildError without a C++ compiler.
    """
    from anymps.kernels import KernelLibrary, open_kernels

    core = native()
    core.begin_margins()
    return KernelLibrary(open_kernels(release or str(installed_torch().version).partition("+")[0]), core)


class _DefaultDevice:
    """What torch takes for the mode of its default device: `torch.set_default_device` ends it.

    That mode, a function mode, costs each call of torch 1.3 µs. A mode can change the device of the few functions that
    make tensors and of nothing else (torch.utils._device.DeviceContext), so it is enough to enter those by another way.
    Two things differ from the mode: `torch.nested.nested_tensor`, which is Python, keeps its own device; and what a
    function of torch makes for itself while it runs is on mps, too.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        native().default_device(device)

    def __exit__(self, *_: object) -> None:
        native().default_device(None)


@contextmanager
def default_device() -> Iterator[None]:
    """Put new tensors of this thread on mps. What the block sets in its place holds until its end; then there is none.

    On a Mac's own device this is `torch.set_default_device`.
    """
    import torch
    from torch.utils import _device

    torch.set_default_device(None)
    if not is_virtual():
        torch.set_default_device("mps")
    else:
        makers = [maker for maker in _device._device_constructors() if type(maker) is type(torch.empty)]
        native().watch_factories(makers, _device.DeviceContext)
        torch._GLOBAL_DEVICE_CONTEXT.device_context = _DefaultDevice(torch.device("mps"))
    try:
        yield
    finally:
        torch.set_default_device(None)


def known_hazards() -> tuple[Hazard, ...]:
    """The known bugs of MPS in force in this process; on a real Mac those that it has, empty before `enable`."""
    return _hazards


def enforce_hazards(known: tuple[Hazard, ...]) -> None:
    """Put these known bugs in force, and no others: the virtual device notes calls that meet them.

    It notes calls that meet one of another release, macOS or GPU as well, under another name.
    """
    global _hazards
    _hazards = known
    if _native is not None:
        _native.set_hazards(hazard_table((*known, *elsewhere(known))))


def enable(
    mac: str | Mac | None = None,
    *,
    fallback: bool | None = None,
    require: str | None = None,
    substrate: str | None = None,
    quiet: bool = False,
    start_method: str | None = None,
    cuda_as_mps: bool | None = None,
    kernels: str | None = None,
) -> State:
    """Make `torch.device("mps")` work in this process.

    On a Mac with a working mps device nothing is replaced. Elsewhere the native core is built (on first use) or loaded,
    and acts as a Mac.

    `mac` is a `Mac` or a text such as `"M3 Pro 18GB, macOS 15.4"`; the default is the variable `ANYMPS_MAC`, then an M3
    Pro with 18 GB. `fallback` sets `PYTORCH_ENABLE_MPS_FALLBACK`, which is read at this call, and where torch is not
    loaded yet, when the program first imports it, as by the real backend. `require` is `"real"` or `"virtual"`, and
    raises on the other kind of device.

    `substrate` chooses what computes: `"host"`, this machine's CPU (the default); `"cuda"`, an NVIDIA GPU
    (docs/gpu.md); or `"shape"`, for plans: tensors have shapes and memory but no values. The variable
    `ANYMPS_SUBSTRATE` may be host or cuda. `quiet` suppresses the line on stderr that describes the device.

    `start_method` is how `multiprocessing` and DataLoader workers start on the virtual device if the program does not
    choose: `"spawn"`, `"fork"` or `"forkserver"`; the default is the variable `ANYMPS_START_METHOD`, then `"spawn"`, as
    on macOS. New processes have the device too. `"system"` changes nothing: processes start by the system's default,
    and new ones have no device.

    With `cuda_as_mps=True`, or `ANYMPS_CUDA_AS_MPS=1` in the environment, mps answers for CUDA, also on a real Mac:
    `torch.cuda`, `.cuda()` and `"cuda"` (docs/cuda.md). False switches this off again.

    With `ANYMPS_ALONE=1` in the environment, this process is the only one in each process group that the program makes
    (docs/cuda.md).

    With `kernels="real"`, or `ANYMPS_KERNELS=real` in the environment, PyTorch's own Metal kernels compute the
    operators whose launches are known, after `anymps kernels add`; the CPU computes the others. With `"cpu"` it
    computes all of them (docs/kernels.md). A release, such as `kernels="2.15"`, uses that release's kernels, whichever
    torch is installed.

    With `ANYMPS_STRICT_COPIES=1` in the environment, a copy to the CPU with `non_blocking=True` arrives only at the
    next wait. Until then floats are NaN, integers 0xA5 or 0x5A in every byte, and bools inverted.

    Calling it again with the same arguments does nothing. Raises MacError if there is no such Mac, RequireError
    if the device is not of the required kind, UnsupportedTorchError and BuildError if torch or the compiler cannot be
    used, and KernelsError if the kernels were not added. Raises EnableError if a backward has already run in this
    process (the autograd engine then has no thread for a new device), if the device already acts as another Mac or uses
    another substrate or other kernels, if the kernels cannot run here, if no NVIDIA GPU can compute, or for an unknown
    start method.
    """
    if require not in (None, "real", "virtual"):
        raise RequireError(f"anymps: require must be 'real' or 'virtual', not {require!r}")
    if substrate is not None and substrate not in SUBSTRATES:
        raise EnableError(f"anymps: substrate must be {' or '.join(map(repr, SUBSTRATES))}, not {substrate!r}")
    if _state is None and substrate is None:
        substrate = asked_for("substrate")
    wanted = kernels_asked_for(kernels, substrate)
    with _enabling:  # several threads may ask; one of them does it
        method, first = choose_start_method(start_method), _state is None
        cuda, alone = asked_for("cuda_as_mps", cuda_as_mps), asked_for("alone")
        asked = _Asked(_choose(mac), mac is not None, fallback, require, substrate, quiet, bool(cuda), wanted)
        current = _enable(asked) if _state is None else _check_again(_state, asked)
        if current.mac is not None and (first or start_method is not None):
            install_start_method(method, current.mac)
            if start_method not in (None, SYSTEM):
                set_variable("start_method", method)  # child processes do the same
    current = current if cuda is None else _answer_cuda(cuda)
    if alone:
        from anymps.device.cuda import run_alone

        run_alone()
    while _when_on:
        _when_on.pop()()
    return current


def _answer_cuda(wanted: bool) -> State:
    """Switch it on or off. On a Mac's own device the native core is needed, for the names that torch reads in C++."""
    global _state
    from anymps.device.cuda import answer_cuda, stop_answering

    assert _state is not None
    if wanted:
        answer_cuda(native(), _state.mac if _state.virtual else this_mac())
    elif _state.cuda_as_mps:
        stop_answering(native())
    _state = replace(_state, cuda_as_mps=wanted)
    return _state


@dataclass(frozen=True)
class _Asked:
    """What a call of `enable` asks for; None stands for what it leaves open."""

    mac: Mac
    mac_named: bool
    fallback: bool | None
    require: str | None
    substrate: str | None
    quiet: bool
    cuda: bool
    kernels: str | None


def _enable(asked: _Asked) -> State:
    global _state
    allowed = _fallback_allowed(asked.fallback)
    strict = asked_for("strict_copies")
    loaded = "torch" in sys.modules
    version = check_supported(installed_torch().version)

    import torch

    if torch.backends.mps.is_built() and torch.backends.mps.is_available():
        _check_real(asked)
        _state = State(False, None, allowed, torch.__version__)
        enforce_hazards(hazards_of(this_mac(), platform.mac_ver()[0], version))
        return _state
    if asked.require == "real":
        raise RequireError("anymps: --require real, but this machine has no real mps device (see: anymps doctor)")
    gpu = take_gpu() if asked.substrate == "cuda" else None  # before anything is built
    real = open_real_kernels(asked.kernels, version)
    substrate = asked.substrate or "host"
    _install(version, asked.mac, allowed, substrate, real, gpu)
    native().hold_back_copies(bool(strict))
    _state = State(True, asked.mac, allowed, torch.__version__, substrate, gpu=gpu)
    if real is not None:
        _state = replace(_state, kernels="real", kernels_torch=real[0])
    if asked.substrate in ("host", "cuda"):
        set_variable("substrate", asked.substrate)  # child processes do the same
    if not loaded:
        at_first_import(lambda: _decide_fallback(asked.fallback))
    if not asked.quiet:
        _introduce(replace(_state, cuda_as_mps=asked.cuda), asked.mac)
    return _state


def _check_real(asked: _Asked) -> None:
    """Refuses what a Mac's own device cannot be."""
    if asked.substrate not in (None, "host"):
        what = "a plan" if asked.substrate == "shape" else f"substrate={asked.substrate!r}"
        raise EnableError(f"anymps: {what} needs the virtual device, and this Mac has a real one")
    if asked.require == "virtual":
        raise RequireError("anymps: --require virtual, but this Mac has a real mps device")
    if asked.kernels not in (None, "cpu"):
        raise EnableError(
            f"anymps: kernels={asked.kernels!r} is for the virtual device; this Mac runs PyTorch's own kernels anyway"
        )


def _introduce(current: State, mac: Mac) -> None:
    """Says on stderr what the device is, and of a GPU that has less memory than the Mac."""
    tell(banner(current))
    if mac.assumed:
        tell(f"anymps: {mac.assumed}")
    note = "" if current.gpu is None else too_small(current.gpu, mac.recommended_max_memory)
    if note:
        tell(f"anymps: {note}")


def banner(current: State) -> str:
    """The one line that says what the device is."""
    if not current.virtual or current.mac is None:
        return f"anymps: real mps device, torch {current.torch}"
    how = SUBSTRATES[current.substrate] + (f" and by {current.kernels_named}" if current.kernels == "real" else "")
    how += f" (cuda:{current.gpu.number}, {current.gpu.name})" if current.gpu is not None else ""
    how += ", answers for cuda" if current.cuda_as_mps else ""
    return f"anymps: VIRTUAL mps device: {current.mac.name}, torch {current.torch}, {how}; not a real Mac"


def _choose(mac: str | Mac | None) -> Mac:
    if isinstance(mac, Mac):
        return mac
    text = mac if mac is not None else os.environ.get(variable_of("mac"))
    return DEFAULT_MAC if text is None else parse_mac(text)


def _check_again(current: State, asked: _Asked) -> State:
    """The device as it is; raises where a later call asks for another one."""
    require, substrate = asked.require, asked.substrate
    if require is not None and current.virtual != (require == "virtual"):
        raise RequireError(f"anymps: --require {require}, but the device is {'virtual' if current.virtual else 'real'}")
    if asked.mac_named and current.mac is not None and asked.mac != current.mac:
        raise EnableError(
            f"anymps: the device already acts as {current.mac.name} in this process and cannot become "
            f"{asked.mac.name}; start a new process for another Mac"
        )
    if substrate not in (None, current.substrate):
        raise EnableError(
            f"anymps: the device is already on with substrate={current.substrate!r}; "
            f"start a new process for substrate={substrate!r}"
        )
    if asked.fallback is not None and asked.fallback != current.fallback:
        raise EnableError(
            "anymps: the CPU fallback was decided when the device was switched on, as on a Mac; "
            f"set {FALLBACK_VARIABLE} or enable(fallback=...) before"
        )
    check_kernels_again(current.kernels_torch or "cpu", asked.kernels, check_supported(current.torch))
    return current


def _fallback_allowed(fallback: bool | None) -> bool:
    """The variable as the real backend reads it (torch 2.13, MPSFallback.mm): unset or integer 0 is off."""
    if fallback is not None:
        set_variable("fallback", fallback)  # child processes decide the same
        return fallback
    text = os.environ.get(FALLBACK_VARIABLE)
    if text is None:
        return False
    try:
        return int(text.strip() or "x") != 0
    except ValueError:
        raise EnableError(
            f"anymps: {FALLBACK_VARIABLE}={text!r} is not a number; torch reads it as an integer and fails; use 1 or 0"
        ) from None


def _decide_fallback(given: bool | None) -> None:
    """The program loads torch now: what it has set before counts, unless `given` says otherwise."""
    global _state
    with suppress(EnableError):  # not a number: as decided when the device was switched on
        allowed = _fallback_allowed(given)
        native().allow_fallback(allowed)
        assert _state is not None
        _state = replace(_state, fallback=allowed)


def _install(
    version: TorchVersion,
    mac: Mac,
    fallback: bool,
    substrate: str,
    kernels: tuple[str, Metallib] | None,
    gpu: Gpu | None,
) -> None:
    global _native
    from anymps.device._surface import install_surface

    core = _load_core()
    if core.engine_started():
        raise EnableError(
            "anymps: a backward has already run in this process, and PyTorch's autograd engine takes no new device "
            "after that; call anymps.enable() before the first backward, ideally right after `import torch`"
        )
    core.configure(rule_tables(version))
    known = hazards(version, mac.macos, mac.metal_family)
    if kernels is not None:
        release, metallib = kernels
        computed = offer_calls(core, metallib, release)
        known = hazards_with_kernels(version, release, computed, mac.macos, mac.metal_family)
    if gpu is not None:
        settle_accuracy(gpu.number)
    core.install_device(machine(version, mac, substrate, 0 if gpu is None else gpu.number))
    core.allow_fallback(fallback)
    _native = core
    enforce_hazards(known)
    install_surface(core, mac, substrate)
    _end_threads_at_exit(core)


def _load_core() -> NativeCore:
    """The native core: one that the installation brought, or one from the cache, built before if there is none."""
    from anymps._cache import CACHE_VARIABLE
    from anymps.device._build import build, cache_directory
    from anymps.device._toolchain import find_prebuilt, find_torch

    prebuilt = find_prebuilt(find_torch())
    if prebuilt is not None:
        with suppress(BuildError):  # made for a newer C library than there is here: the compiler is the way out
            return _load(prebuilt)
    path = build()
    # A child process with a home of its own, as pytest's `pytester` gives one, finds this core and compiles none.
    os.environ[CACHE_VARIABLE] = str(cache_directory().parent)
    return _load(path)


def _end_threads_at_exit(core: NativeCore) -> None:
    """Ends the engine's device thread while the interpreter lives; see `end_device_threads` in device_bindings.cpp."""
    process = os.getpid()

    def end() -> None:
        if os.getpid() == process:  # a forked child has no such threads, and would wait for them
            core.end_device_threads()

    atexit.register(end)
    os.register_at_fork(after_in_child=lambda: os.environ.update(TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT="0"))


def _load(path: Path) -> NativeCore:
    spec = importlib.util.spec_from_file_location("anymps._native", path)
    if spec is None or spec.loader is None:
        raise BuildError(f"anymps: {path} is not an extension module for this Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise BuildError(
            f"anymps: the native core does not load ({error}); delete {path.parent} and try again"
        ) from error
    sys.modules["anymps._native"] = module
    return cast("NativeCore", module)
