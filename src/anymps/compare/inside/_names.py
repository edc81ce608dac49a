"""Device names that stand for a different device, so that a script that says "mps" or "cuda" runs without it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

_TAKE_NAMES: Final = frozenset(
    {
        torch.Tensor.to,
        torch.Tensor.new_empty,
        torch.Tensor.new_full,
        torch.Tensor.new_ones,
        torch.Tensor.new_tensor,
        torch.Tensor.new_zeros,
    }
)
"""Functions that take a device's name without saying `device=`."""

# What a script calls of torch.mps and torch.cuda without asking whether the device is there; each with its answer.
_QUIET: Final = {
    "synchronize": None,
    "empty_cache": None,
    "manual_seed": None,
    "manual_seed_all": None,
    "seed": None,
    "set_per_process_memory_fraction": None,
    "current_allocated_memory": 0,
    "driver_allocated_memory": 0,
    "recommended_max_memory": 0,
    "memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_allocated": 0,
    "max_memory_reserved": 0,
    "reset_peak_memory_stats": None,
    "reset_max_memory_allocated": None,
}


class DeviceNames(TorchFunctionMode):
    """Has `names` mean `target` in each call of torch while it is entered."""

    def __init__(self, names: Collection[str], target: str) -> None:
        super().__init__()
        self._names, self._target = frozenset(names), target

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda and "cuda" in self._names:
            return args[0].to(self._target)
        for name in ("device", "device_type"):
            if name in kwargs:
                kwargs[name] = self.renamed(kwargs[name])
        texts = func in _TAKE_NAMES
        args = tuple(
            self.renamed(item) if isinstance(item, torch.device) or (texts and isinstance(item, str)) else item
            for item in args
        )
        return func(*args, **kwargs)

    def renamed(self, device: Any) -> Any:
        """The device that a name, or a device, stands for; anything else as it is."""
        if isinstance(device, torch.device):
            return torch.device(self._target) if device.type in self._names else device
        if isinstance(device, str) and device.partition(":")[0] in self._names:
            return self._target
        return device


def rename_devices(names: Collection[str], target: str) -> DeviceNames:
    """Let `names` mean `target` to the end of the process: for calls, autocast, scalers, generators and loading."""
    mode = DeviceNames(names, target)
    from torch.amp import autocast_mode, grad_scaler

    for owner, parameter in ((autocast_mode.autocast, "device_type"), (grad_scaler.GradScaler, "device")):
        setattr(owner, "__init__", _renamed(owner.__init__, parameter, mode))  # noqa: B010 - of a class, for mypy
    torch.load = _renamed(torch.load, "map_location", mode)
    torch.set_default_device = _renamed(torch.set_default_device, "device", mode)  # which is asked after this mode
    setattr(torch, "Generator", _generator_class(mode))  # noqa: B010 - a class, for mypy
    for name in names:
        module = getattr(torch, name)
        for function, answer in _QUIET.items():
            if hasattr(module, function):
                setattr(module, function, lambda *_, answer=answer, **__: answer)
    mode.__enter__()  # type: ignore[no-untyped-call]
    return mode


def _renamed(original: Callable[..., Any], parameter: str, mode: DeviceNames) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def made(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind_partial(*args, **kwargs)
        default = signature.parameters[parameter].default
        bound.arguments[parameter] = mode.renamed(bound.arguments.get(parameter, default))
        return original(*bound.args, **bound.kwargs)

    return made


def _generator_class(mode: DeviceNames) -> type:
    original = torch.Generator

    class Named(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=Named):  # type: ignore[misc, valid-type]
        """`torch.Generator`, on the device that a name stands for."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return original(device=mode.renamed(device))

    return Generator
