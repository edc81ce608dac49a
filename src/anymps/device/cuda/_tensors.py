"""Tensors, storages and checkpoints that are sent to CUDA, and the types that CUDA tensors had before devices."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from anymps.device.cuda._names import index_of
from anymps.device.cuda._patches import Patches
from anymps.device.cuda._streams import Stream
from anymps.device.cuda._uses import tell

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
        tell()
        plain: torch.Tensor = getattr(torch, cls.__name__)(
            *args, **{key: it for key, it in kwargs.items() if key != "device"}
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
    tell()
    index_of(device)
    return self.to("mps:0", non_blocking=non_blocking, memory_format=memory_format)


def _pin_memory(self: Any, device: Any = None) -> Any:
    """This tensor: CPU and GPU of a Mac share their memory."""
    tell()
    return self


def _storage_cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    tell()
    index_of(device)
    return self.mps()


def _legacy_type(kind: Any) -> Any:
    if isinstance(kind, str):
        match = re.fullmatch(r"torch\.cuda\.(\w+)", kind)
        return LEGACY.get(match[1]) if match else None
    return kind if isinstance(kind, _LegacyType) else None


def _load(storage: Any, location: str) -> Any:
    if location.partition(":")[0] != "cuda":
        return None
    index = location[5:]
    if index not in ("", "0"):
        raise RuntimeError(  # as torch/serialization.py (_validate_device) says it
            f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is 1. Please use "
            "torch.load with map_location to map your storages to an existing device."
        )
    tell()
    return storage.mps()


def install(patches: Patches) -> None:
    """`.cuda()` and `pin_memory()`, legacy types, and reading what was saved on CUDA."""
    tensor: Any = torch.Tensor
    patches.put(tensor, "cuda", _cuda)
    patches.put(tensor, "pin_memory", _pin_memory)
    original_type, original_record = tensor.type, tensor.record_stream

    @functools.wraps(original_type)
    def type_(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        legacy = _legacy_type(dtype)
        if legacy is None:
            return original_type(self, *(() if dtype is None else (dtype,)), *args, **kwargs)
        tell()
        return self.to("mps", legacy.dtype)

    @functools.wraps(original_record)
    def record_stream(self: Any, stream: Any) -> None:
        if not isinstance(stream, Stream):
            original_record(self, stream)

    patches.put(tensor, "type", type_)
    patches.put(tensor, "record_stream", record_stream)
    patches.put(torch.storage._StorageBase, "cuda", _storage_cuda)
    original_default = torch.set_default_tensor_type

    @functools.wraps(original_default)
    def set_default_tensor_type(t: Any) -> None:
        legacy = _legacy_type(t)
        if legacy is None:
            original_default(t)
            return
        tell()
        torch.set_default_dtype(legacy.dtype)
        torch.set_default_device("mps")

    patches.put(torch, "set_default_tensor_type", set_default_tensor_type)
    registry = torch.serialization._package_registry
    former = list(registry)
    torch.serialization.register_package(_BEFORE_CUDA, lambda _: None, _load)
    patches.put(torch.serialization, "_package_registry", list(registry))
    registry[:] = former
