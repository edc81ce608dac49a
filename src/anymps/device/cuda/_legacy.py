"""Legacy types of CUDA tensors: `torch.cuda.FloatTensor` and its like, also as the default type."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import torch

from anymps.device.cuda._patches import Patches
from anymps.device.cuda._uses import report_use

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


def install(patches: Patches) -> None:
    """`x.type(torch.cuda.FloatTensor)` and `torch.set_default_tensor_type(torch.cuda.FloatTensor)`."""
    patches.put(torch.Tensor, "type", _type_with_legacy(torch.Tensor.type))
    default = _DefaultType(torch.set_default_tensor_type)

    @functools.wraps(torch.set_default_tensor_type)
    def set_default_tensor_type(t: Any) -> None:
        default.choose(t)

    patches.put(torch, "set_default_tensor_type", set_default_tensor_type)
    patches.callback(default.leave)


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
