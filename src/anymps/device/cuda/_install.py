"""Switches it on and off: `torch.cuda`, the names of its devices, and features that a Mac lacks."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from anymps.device.cuda import _devices, _libraries, _memory, _streams, _tensors
from anymps.device.cuda._names import TYPES, functions_with_device, index_of, stand_in
from anymps.device.cuda._refused import REFUSED, REFUSED_MODULES, refusing, refusing_class
from anymps.device.cuda._uses import Patches, report_caller, reporting
from anymps.mac import Mac

if TYPE_CHECKING:
    from anymps.device._native import NativeCore

# Modules whose functions are also names of torch.cuda.
_HOMES = ("memory", "streams", "random", "graphs", "green_contexts")
_installed: Patches | None = None


def answer_cuda(core: NativeCore, mac: Mac | None) -> None:
    """Let mps answer for CUDA. `mac` is the one that is played or that this machine is, None if it is not known."""
    global _installed
    if _installed is not None:
        return
    functions = list(functions_with_device())  # before anything stands in another's place, as the types
    types = [getattr(torch, name) for name in TYPES]
    patches = Patches()
    for name, answer in answers(mac).items():
        _put(patches, name, answer)
    for name, instead in REFUSED.items():
        if hasattr(torch.cuda, name):
            make = refusing_class if isinstance(getattr(torch.cuda, name), type) else refusing
            _put(patches, name, make(f"torch.cuda.{name}", instead))
    for module, instead in REFUSED_MODULES.items():
        _refuse_module(patches, module, instead)
    _quiet(patches)
    patches.put(torch.cuda, "default_generators", (torch.mps._get_default_mps_generator(),))
    patches.put(importlib.import_module("torch.cuda._utils"), "_get_device_index", _device_index)
    _tensors.install(patches)
    _libraries.install(patches)
    patches.put(importlib.import_module("torch.nn.parallel.scatter_gather"), "Scatter", _OneDevice)
    core.rename_cuda(stand_in, functions, types)
    _forget_functions()
    _installed = patches


def stop_answering(core: NativeCore) -> None:
    """Put back what torch had."""
    global _installed
    if _installed is not None:
        core.rename_cuda(None, [], [])
        _installed.close()
        _installed = None


def answers(mac: Mac | None) -> dict[str, Any]:
    """The public names of torch.cuda that mps answers."""
    functions: dict[str, Any] = {name: _always(value) for name, value in _devices.CONSTANTS.items()}
    functions |= {**_memory.OTHER_NAMES, **_devices.answers_of(mac)}
    for module in (_devices, _memory, _streams):
        functions |= {name: value for name, value in vars(module).items() if _is_answer(module, name, value)}
    return {
        **{
            name: function if isinstance(function, type) else reporting(function)
            for name, function in functions.items()
        },
        **_tensors.LEGACY,
    }


def _always(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _is_answer(module: ModuleType, name: str, value: object) -> bool:
    """Whether it is a function or class of that module with the name of one of torch.cuda's."""
    return getattr(value, "__module__", "") == module.__name__ and hasattr(torch.cuda, name)


def _put(patches: Patches, name: str, value: object) -> None:
    if not hasattr(torch.cuda, name):
        return  # of another release
    patches.put(torch.cuda, name, value)
    for home in _HOMES:
        module = sys.modules.get(f"torch.cuda.{home}")
        if module is not None and name in vars(module):
            patches.put(module, name, value)


def _forget_functions() -> None:
    """Clear torch's caches of functions: a replaced function has a different hash."""
    rules = sys.modules.get("torch._dynamo.trace_rules")  # where something has been compiled already
    for module in (torch.overrides, torch.utils._device, *([rules] if rules is not None else [])):
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def _refuse_module(patches: Patches, name: str, instead: str) -> None:
    try:
        module = importlib.import_module(f"torch.cuda.{name}")
    except ImportError:
        return  # of another release
    names = getattr(module, "__all__", None) or ("_create_jit_fn", "_create_multi_output_jit_fn")
    for function in names:
        if callable(getattr(module, function, None)):
            patches.put(module, function, refusing(f"torch.cuda.{name}.{function}", instead))


def _quiet(patches: Patches) -> None:
    """Marks and switches for NVIDIA's own tools, which see nothing of a Mac."""

    def nothing(*_: object, **__: object) -> int:
        report_caller(1)
        return 0

    @contextlib.contextmanager
    def block(*_: object, **__: object) -> Iterator[None]:
        report_caller(2)
        yield

    for module, name, stand in (
        (torch.cuda.nvtx, "range_push", nothing),
        (torch.cuda.nvtx, "range_pop", nothing),
        (torch.cuda.nvtx, "range_start", nothing),
        (torch.cuda.nvtx, "range_end", nothing),
        (torch.cuda.nvtx, "mark", nothing),
        (torch.cuda.nvtx, "range", block),
        (torch.cuda.profiler, "start", nothing),
        (torch.cuda.profiler, "stop", nothing),
        (torch.cuda.profiler, "profile", block),
    ):
        if hasattr(module, name):
            patches.put(module, name, stand)


def _device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    if allow_cpu and str(device) == "cpu":
        return -1
    return index_of(device)


class _OneDevice:
    """How `nn.DataParallel` hands a batch to the only device: by moving it there."""

    @staticmethod
    def apply(target_gpus: Any, chunk_sizes: Any, dim: int, batch: torch.Tensor) -> tuple[torch.Tensor]:
        return (batch.to("mps:0"),)
