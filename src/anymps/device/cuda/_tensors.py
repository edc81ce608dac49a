"""Tensors, storages and checkpoints that are sent to CUDA, the types of its tensors, and mixed precision."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.amp import autocast_mode, grad_scaler

from anymps.device.cuda._names import place_of
from anymps.device.cuda._streams import Stream
from anymps.device.cuda._uses import Patches, report_use

_BEFORE_CUDA = 15  # torch asks its own reader of CUDA locations at 20 (torch/serialization.py)


_TYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


class _LegacyType(type):
    """`torch.cuda.FloatTensor`: makes tensors of its dtype on mps, and is the type of those that are."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        report_use()
        if _names_sizes(args):
            return torch.empty(*args, dtype=cls.dtype, device="mps")
        plain: torch.Tensor = getattr(torch, cls.__name__)(
            *args, **{key: value for key, value in kwargs.items() if key != "device"}
        )
        return plain.to(device="mps", dtype=cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_mps and instance.dtype == cls.dtype


LEGACY = {
    f"{name}Tensor": _LegacyType(f"{name}Tensor", (), {"dtype": dtype, "__module__": "torch.cuda"})
    for name, dtype in _TYPES.items()
}


def _cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format) -> Any:
    """A copy of this tensor on the mps device, itself where it is there."""
    report_use()
    return self.to(place_of(device), non_blocking=non_blocking, memory_format=memory_format)


def _pin_memory(self: Any, device: Any = None) -> Any:
    """This tensor: CPU and GPU of a Mac share their memory."""
    report_use()
    return self


def _storage_cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    report_use()
    place_of(device)
    return self.mps()


def _load(storage: Any, location: str) -> Any:
    if location.partition(":")[0] != "cuda":
        return None
    index = location[5:]
    if index not in ("", "0"):
        raise RuntimeError(  # as torch/serialization.py (_validate_device) says it
            f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is 1. Please use "
            "torch.load with map_location to map your storages to an existing device."
        )
    report_use()
    return storage.mps()


def install(patches: Patches) -> None:
    """`.cuda()`, `pin_memory()`, what was saved on CUDA, `torch.cuda.FloatTensor`, autocast, scalers, `custom_fwd`."""
    tensor: Any = torch.Tensor
    patches.put(tensor, "cuda", _cuda)
    patches.put(tensor, "pin_memory", _pin_memory)
    original_record = tensor.record_stream

    @functools.wraps(original_record)
    def record_stream(self: Any, stream: Any) -> None:
        if not isinstance(stream, Stream):
            original_record(self, stream)

    patches.put(tensor, "record_stream", record_stream)
    patches.put(torch.storage._StorageBase, "cuda", _storage_cuda)
    registry = torch.serialization._package_registry
    former = list(registry)
    torch.serialization.register_package(_BEFORE_CUDA, lambda _: None, _load)
    patches.put(torch.serialization, "_package_registry", list(registry))
    registry[:] = former
    patches.put(tensor, "type", _type_with_legacy(tensor.type))
    default = _DefaultType(torch.set_default_tensor_type)

    @functools.wraps(torch.set_default_tensor_type)
    def set_default_tensor_type(t: Any) -> None:
        default.choose(t)

    patches.put(torch, "set_default_tensor_type", set_default_tensor_type)
    patches.callback(default.leave)
    for owner, name in ((autocast_mode.autocast, "device_type"), (grad_scaler.GradScaler, "device")):
        patches.put(owner, "__init__", _renamed(owner.__init__, name))
    patches.put(autocast_mode, "_cast", _cast_on_mps(autocast_mode._cast))
    patches.put(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)


def _renamed(original: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    default = inspect.signature(original).parameters[parameter].default

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        device = args[0] if args else kwargs.get(parameter, default)
        if isinstance(device, str) and device.partition(":")[0] == "cuda":
            report_use()
            if args:
                args = ("mps", *args[1:])
            else:
                kwargs = kwargs | {parameter: "mps"}
        original(self, *args, **kwargs)

    return made


def _cast_on_mps(original: Callable[..., Any]) -> Callable[..., Any]:
    """What `custom_fwd` casts: tensors of the named device."""

    @functools.wraps(original)
    def cast(value: Any, device_type: str, dtype: torch.dtype) -> Any:
        return original(value, "mps" if device_type == "cuda" else device_type, dtype)

    return cast


def _type_with_legacy(original: Any) -> Any:
    @functools.wraps(original)
    def type_(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        legacy = _legacy_type(dtype)
        if legacy is None:
            return original(self, *(() if dtype is None else (dtype,)), *args, **kwargs)
        report_use()
        return self.to("mps", legacy.dtype)

    return type_


class _DefaultType:
    """Which type of CUDA is the default one, if any: it says where `torch.zeros` and `torch.Tensor` make tensors."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self._on = False

    def choose(self, t: Any) -> None:
        legacy = _legacy_type(t)
        if legacy is None:
            self._original(t)
            self.leave()
            return
        report_use()
        torch.set_default_dtype(legacy.dtype)  # raises TypeError for one that is no floating-point type
        torch.set_default_device("mps")
        if not self._on:
            self._on = True
            torch.Tensor.__new__ = staticmethod(_new_on_mps)  # type: ignore[method-assign]

    def leave(self) -> None:
        """Make tensors on the CPU again."""
        if self._on:
            self._on = False
            torch.set_default_device(None)
            del torch.Tensor.__new__


def _new_on_mps(*given: Any, **kwargs: Any) -> Any:
    """`torch.Tensor(2, 3)` and `torch.Tensor([1.0])`: they follow the default type, not the default device.

    It names no parameter: Dynamo, which the first optimizer imports, compares them with those of its own `__new__`.
    """
    cls, *args = given
    made: Any = torch._C.TensorBase.__new__
    if kwargs or (args and isinstance(args[0], (torch.Tensor, torch.UntypedStorage, torch.TypedStorage))):
        return made(cls, *args, **kwargs)
    there = torch.empty(*args, device="mps") if _names_sizes(args) else made(torch.Tensor, *args).to("mps")
    return there if cls is torch.Tensor else there.as_subclass(cls)


def _names_sizes(args: Sequence[Any]) -> bool:
    """Whether the arguments of a tensor type are sizes, and no data."""
    if len(args) == 1 and isinstance(args[0], torch.Size):
        return True
    return all(isinstance(argument, int) for argument in args) and len(args) > 0


def _legacy_type(kind: Any) -> Any:
    if isinstance(kind, str):
        match = re.fullmatch(r"torch\.cuda\.(\w+)", kind)
        return LEGACY.get(match[1]) if match else None
    return kind if isinstance(kind, _LegacyType) else None
