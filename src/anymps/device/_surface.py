"""The Python surface of the device: what `torch.mps`, `torch.backends.mps` and `torch._C` lack off a Mac."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

import torch

from anymps.device._extensions import install_extensions, telling_why
from anymps.mac import Mac
from anymps.rules import version_rules

if TYPE_CHECKING:
    from anymps.device._native import NativeCore

# Who asks once whether there is an mps device and keeps the answer: the caches of a module or of a class in it, and
# constants. Lightning has its code twice, as `lightning` and as `lightning_fabric` with `pytorch_lightning`. Read in
# torch 2.13, transformers 5.23 (which asks while it is imported) and lightning 2.6.
_CACHES = (
    ("torch.backends.mps", ""),
    ("transformers.utils.import_utils", ""),
    ("lightning.fabric.accelerators.mps", "MPSAccelerator"),
    ("lightning_fabric.accelerators.mps", "MPSAccelerator"),
)
_CONSTANTS = (("transformers.integrations.sdpa_attention", "_is_torch_mps_available"),)
_DEVICE_TYPE = 13  # c10::DeviceType::MPS
_ASKS_PROCESSOR = ("lightning", "lightning_fabric", "pytorch_lightning")


def install_surface(core: NativeCore, mac: Mac, substrate: str) -> None:
    """Adds the missing bindings and makes torch's Python modules ask again. `core` is the configured native module."""
    _install_bindings(core, mac, substrate)
    # Compiled extensions find the functions that torch's C interface has on a Mac (device/launches/extensions.cpp).
    ctypes.CDLL(sys.modules["anymps._native"].__file__, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
    if version_rules(torch.__version__).private_set_stream:
        _install_streams(core)
    _forget_answers()
    _install_storages()
    _install_layouts()
    _install_engine(core)
    _hide_cuda()
    _answer_processor()
    install_extensions()


def _install_bindings(core: NativeCore, mac: Mac, substrate: str) -> None:
    """The `torch._C._mps_*` functions that exist in a macOS build only (torch 2.13, torch/csrc/mps/Module.cpp)."""
    torch._C._has_mps = True

    captures = itertools.count()

    def start_capture(name: str) -> None:
        # A Mac without MTL_CAPTURE_ENABLED=1 refuses in the same way, with the name of the file that it would write.
        file = f"{next(captures):04d}-{name}.gputrace"
        raise RuntimeError(f"Failed to start capture of {file} error Capturing is not supported.")

    def host_alias_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
        on_gpu("a view of an mps storage for the CPU is read")
        if not isinstance(storage, torch.UntypedStorage):
            raise RuntimeError("_mps_host_alias_storage: expected a torch.UntypedStorage")
        if storage.device.type != "mps":
            raise ValueError(f"getHostAliasStorage: expected an MPS storage, got device={storage.device}")
        # The substrate's bytes are host memory already: a view of them that keeps the storage alive.
        view = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
        view._owner = storage  # type: ignore[attr-defined]
        return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()

    def no_libraries(*_: object) -> None:
        raise RuntimeError(
            "anymps: the virtual mps device loads no compiled Metal libraries; "
            "give the source to torch.mps.compile_shader, or use a real Mac"
        )

    def gpu_refusal(what: str) -> str:
        why = "on this machine's CPU, which cannot reach tensors on the NVIDIA GPU: use --substrate host"
        return f"anymps: {what} {why}" if substrate == "cuda" else ""  # an NVIDIA GPU holds the bytes of tensors

    def on_gpu(what: str) -> None:
        if refusal := gpu_refusal(what):
            raise RuntimeError(refusal)

    def compile_shader(source: str) -> Any:
        on_gpu("Metal shaders (torch.compile writes them, too) run")
        from anymps.metal import ShaderLibrary  # most programs have none

        return ShaderLibrary(source, core)

    missing: dict[str, Any] = {
        "_mps_compileShader": compile_shader,
        "_mps_releaseEvent": core.release_event,
        "_mps_isCaptureEnabled": lambda: False,
        "_mps_isCapturing": lambda: False,
        "_mps_startCapture": start_capture,
        "_mps_stopCapture": lambda: None,
        "_mps_get_name": lambda: mac.chip,
        "_mps_get_core_count": lambda: mac.gpu_cores,
    }
    if version_rules(torch.__version__).host_alias_storage:
        missing |= {
            "_mps_host_alias_storage": host_alias_storage,
            "_mps_loadMetalllib": no_libraries,  # torch's own spelling
            "_mps_loadMetallibFromPath": no_libraries,
            "_mps_maxBufferLength": core.max_buffer_length,
        }
    for name, function in missing.items():
        setattr(torch._C, name, function)
    core.install_package_runner(torch._C._aoti, gpu_refusal("packages of AOTInductor run"))
    # torch's own puts the text of included headers into the source; ours keeps the `#include`, and the user's lines.
    compile_shader.__doc__ = torch.mps.compile_shader.__doc__
    torch.mps.compile_shader = compile_shader
    core.answer_extensions(telling_why(compile_shader, mac.macos))


def _install_streams(core: NativeCore) -> None:
    """The streams of torch 2.15 (torch/csrc/mps/Stream.cpp): their base class, and the bindings of `torch.mps.streams`.

    2.14 has the base class and `_mps_setStream`, and nothing in Python that makes use of them.
    """

    class _MPSStreamBase(torch.Stream):
        """A stream of the pool, or the one with the given number."""

        def __new__(cls, stream_id: int = -1) -> _MPSStreamBase:
            number = core.take_stream(stream_id)
            return super().__new__(cls, stream_id=number, device_index=0, device_type=_DEVICE_TYPE)

        def synchronize(self) -> None:
            torch._C._mps_deviceSynchronize()  # one stream or all: everything has run

    _MPSStreamBase.__module__ = "torch._C"

    def set_stream(stream: torch.Stream | None) -> None:
        if stream is not None and not isinstance(stream, _MPSStreamBase):
            raise RuntimeError("invalid stream argument to setStream")
        core.set_current_stream(0 if stream is None else stream.stream_id)

    bindings: dict[str, Any] = {"_MPSStreamBase": _MPSStreamBase, "_mps_setStream": set_stream}
    several = version_rules(torch.__version__).several_streams
    if several:
        bindings["_mps_getCurrentStream"] = lambda: _MPSStreamBase(stream_id=core.current_stream())
        bindings["_mps_allocator_waitForEvents"] = lambda pointers: False  # whether there was one to wait for
    for name, binding in bindings.items():
        setattr(torch._C, name, binding)
    if not several:
        return
    # `torch.mps.Stream` was derived from a stand-in, where there was no base class yet.
    streams = importlib.reload(importlib.import_module("torch.mps.streams"))
    for name in streams.__all__:
        setattr(torch.mps, name, getattr(streams, name))


def _forget_answers() -> None:
    """What was said before the device existed no longer holds, also for libraries that were imported before."""
    for module, owner in _CACHES:
        holder = sys.modules.get(module)
        holder = getattr(holder, owner, None) if owner else holder
        for name in dir(holder):
            clear = getattr(getattr(holder, name), "cache_clear", None)
            if clear is not None:
                clear()
    for module, name in _CONSTANTS:
        holder = sys.modules.get(module)
        if hasattr(holder, name):
            setattr(holder, name, True)
    torch.backends.mps.is_available()  # asking installs torch's fork handler, which tells a child that it is one


def _install_storages() -> None:
    """`torch.UntypedStorage(n, device="mps")`: its C++ constructor knows mps in a macOS build only."""
    original = torch.UntypedStorage.__new__

    def new(cls: type[torch.UntypedStorage], *args: Any, **kwargs: Any) -> torch.UntypedStorage:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != "mps":
            return original(cls, *args, **kwargs)
        rest = {key: value for key, value in kwargs.items() if key not in ("device", "dtype")}
        on_cpu = original(torch.UntypedStorage, *args, **rest)
        storage = torch.empty(on_cpu.nbytes(), dtype=torch.uint8, device="mps").untyped_storage()
        if args and not isinstance(args[0], int):  # made from a sequence of bytes
            storage.copy_(on_cpu)
        return storage

    torch.UntypedStorage.__new__ = staticmethod(new)  # type: ignore[assignment]


def _install_layouts() -> None:
    """The layout of a convolution's result in a graph, which torch knows for mps in a macOS build only.

    channels_last where the input or the weight is: `mps_conv_use_channels_last`, and Convolution.cpp behind
    `if USE_MPS` (torch 2.11 to 2.15, ATen/native). Inductor holds the tensors that come to the answer.
    """
    original = torch._C._conv_determine_backend_memory_format

    def determine(input: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if input.device.type != "mps":
            return original(input, weight, backend)
        from torch._prims_common import suggest_memory_format  # loads sympy, which a program that compiles has

        last = {torch.channels_last, torch.channels_last_3d}
        if last.isdisjoint({suggest_memory_format(input), suggest_memory_format(weight)}):
            return torch.contiguous_format
        return torch.channels_last_3d if weight.ndim == 5 else torch.channels_last

    torch._C._conv_determine_backend_memory_format = determine


def _install_engine(core: NativeCore) -> None:
    """Every backward goes by `core.run_backward`, which chooses its thread (device/calls/backward_thread.h)."""
    original = torch.autograd.Variable._execution_engine
    engine: Any = type("ImperativeEngine", (type(original),), {"run_backward": staticmethod(core.run_backward)})
    core.set_engine(original.run_backward)
    torch.autograd.Variable._execution_engine = engine()


def _hide_cuda() -> None:
    """A Mac has no CUDA: a CUDA build of torch must not offer it beside mps."""
    if not torch._C._has_cuda:
        return
    torch.cuda.is_available = lambda: False
    torch.cuda.device_count = lambda: 0
    torch.backends.cudnn.is_available = lambda: False

    def lazy_init() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")  # what a Mac's torch says

    torch.cuda._lazy_init = lazy_init


def _answer_processor() -> None:
    """Lightning's MPSAccelerator asks `platform.processor()` for "arm"; it alone gets that answer."""
    original = platform.processor

    def processor() -> str:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        return "arm" if caller.split(".")[0] in _ASKS_PROCESSOR else original()

    platform.processor = processor
