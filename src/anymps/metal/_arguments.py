"""The arguments of a kernel, as PyTorch's binding accepts them: buffers, constants, sizes.

Source: torch 2.13, torch/csrc/mps/Module.cpp (`MetalKernelFunction.__call__`, `OptionalArgCaster`) and
aten/src/ATen/native/mps/OperationUtils.h (`mtl_setBuffer`). Errors are theirs, word for word.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

_REPORT = "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
_CAST = (
    "Unable to cast Python instance of type {} to C++ type '?' (#define PYBIND11_DETAILED_ERROR_MESSAGES "
    "or compile in debug mode for details)"
)
_INTEGERS = {"int32": ("i", 32), "int16": ("h", 16), "int8": ("b", 8), "uint8": ("B", 8)}
CODE_OF_CAST = {name: code for name, (code, _) in _INTEGERS.items()}
"""Integers' casts, and how `struct` packs what they give."""
_CASTS = frozenset({"fp16", "bf16", *_INTEGERS})
_LETTER_OF_CAST = {"fp16": "e", "bf16": "E", **CODE_OF_CAST}
LETTERS = {
    torch.float32: "f",
    torch.float16: "e",
    torch.bfloat16: "E",
    torch.int64: "q",
    torch.int32: "i",
    torch.int16: "h",
    torch.int8: "b",
    torch.uint8: "B",
    torch.bool: "?",
    torch.uint16: "H",
    torch.uint32: "I",
    torch.uint64: "Q",
    torch.complex64: "f",
    torch.complex32: "e",
}
"""What tensors are made of, as in `struct`; E: bfloat16. A complex number is two."""
PADDING = 64  # behind a constant: a parameter may be wider than what it was given

Sizes = tuple[int, ...]


Table = Sequence[torch.Tensor]
"""Tensors whose addresses a kernel reads in the place of a buffer."""


@dataclass(slots=True)
class Constant:
    """Bytes that a kernel reads in the place of a buffer; without any it finds no buffer there.

    `letter` is what the numbers are, as in `struct`, and E for bfloat16; empty where nobody knows.
    """

    data: bytes
    letter: str = ""


@dataclass(slots=True)
class Arguments:
    """One call: by buffer index a tensor on mps, a table of such tensors, or a constant."""

    slots: list[torch.Tensor | Table | Constant] = field(default_factory=list)
    threads: Sizes = ()
    group_size: Sizes | None = None

    def integers(self) -> set[int]:
        """The numbers that are integers."""
        found: set[int] = set()
        for slot in self.slots:
            if isinstance(slot, Constant) and slot.letter in ("q", *CODE_OF_CAST.values()):
                data = memoryview(slot.data)[: len(slot.data) - PADDING]
                found.update(number for (number,) in struct.iter_unpack(slot.letter, data))
        return found

    def tensors(self) -> list[torch.Tensor]:
        """All tensors in order."""
        return [one for slot in self.slots for one in tensors_of(slot)]


def tensors_of(slot: torch.Tensor | Table | Constant) -> list[torch.Tensor]:
    """The tensors of one argument: one, none, or those of a table."""
    if isinstance(slot, torch.Tensor):
        return [slot]
    return [] if isinstance(slot, Constant) else [*slot]


def bind_arguments(values: Sequence[Any], threads: Any, group_size: Any, arg_casts: Any) -> Arguments:
    """Reads a call's arguments. Raises what torch raises on a Mac for those that it does not take."""
    bound = Arguments()
    sizes, group = _sizes(threads), _sizes(group_size)
    default, casts = _casts(arg_casts)
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            bound.slots.append(value if value.is_mps else _host_tensor(value))
            if sizes is None:
                sizes = (value.numel(),)
        else:
            bound.slots.append(_value(value, casts.get(index, default), default))
    if sizes is None or len(sizes) > 3:
        raise RuntimeError("Number of threads is undefined or has wrong dimension")
    if group is not None and len(group) != len(sizes):
        condition = "!group_size.has_value() || threads->size() == group_size->size()"
        raise RuntimeError(f"Expected {condition} to be true, but got false.  {_REPORT}")
    bound.threads, bound.group_size = sizes, group
    return bound


def group_of(threads: Sizes, group_size: Sizes | None, limit: int) -> tuple[int, int, int]:
    """The size of a group: as given, else as large as it can be along the first dimension.

    Raises ValueError above the limit.
    """
    if group_size is not None:
        group = group_size
    else:
        group = (min(threads[0], limit),) if len(threads) == 1 else (limit,)
    x, y, z, *_ = (*group, 1, 1)
    if x * y * z > limit:
        raise ValueError(f"Threadgroup size exceeds {limit} limit")
    return x, y, z


def _sizes(value: Any) -> Sizes | None:
    if value is None:
        return None
    if isinstance(value, int):
        return (_unsigned(value),)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise RuntimeError(_CAST.format(type(value)))
    sizes = tuple(_unsigned(item) for item in value)
    if not 0 < len(sizes) < 4:
        raise RuntimeError(f"Expected vec.size() > 0 && vec.size() < 4 to be true, but got false.  {_REPORT}")
    return sizes


def _unsigned(value: Any) -> int:
    if not hasattr(value, "__index__") or not 0 <= value < 1 << 64:
        raise RuntimeError(_CAST.format(type(value)))
    return int(value)


def _casts(value: Any) -> tuple[str, Mapping[int, str]]:
    if value is None:
        return "", {}
    if isinstance(value, str):
        return value, {}
    if isinstance(value, dict):
        return "", value
    raise RuntimeError(f"Unexpected caster arg type {type(value).__name__}")


def _host_tensor(tensor: torch.Tensor) -> Constant:
    if tensor.device.type != "cpu" or tensor.dim() != 0:
        raise RuntimeError("Passed CPU tensor to MPS op")
    if tensor.dtype == torch.float64:
        tensor = tensor.float()
    elif tensor.dtype == torch.complex128:
        tensor = tensor.to(torch.complex64)
    data = tensor.resolve_conj().resolve_neg().reshape(1).view(torch.uint8).numpy().tobytes()
    return Constant(data + bytes(PADDING), LETTERS.get(tensor.dtype, ""))


def _value(value: Any, cast: str, default: str) -> list[torch.Tensor] | Constant:
    if isinstance(value, Constant):  # a compiled extension's
        return value
    if isinstance(value, (tuple, list)):
        return _sequence(value, cast, default)
    if isinstance(value, (int, float)):
        return _constant([value], float if isinstance(value, float) else int, cast, default)
    raise RuntimeError("Unsupported argument type")


def _sequence(values: tuple[Any, ...] | list[Any], cast: str, default: str) -> list[torch.Tensor] | Constant:
    """The first element decides what all of them have to be."""
    if not values:
        raise RuntimeError("Empty list/tuple can not be an argument to metal kernel")
    first = values[0]
    if isinstance(first, torch.Tensor):
        for tensor in values:
            if not isinstance(tensor, torch.Tensor):
                raise RuntimeError(_CAST.format(type(values)))
            if not tensor.is_mps:
                raise RuntimeError("Passed CPU tensor to MPS op")
        return list(values)
    if not isinstance(first, (int, float)):
        raise RuntimeError("Unexpected argument types")
    kind = int if isinstance(first, int) else float
    if not all(isinstance(item, int if kind is int else (int, float)) for item in values):
        raise RuntimeError(_CAST.format(type(values)))
    return _constant(values, kind, cast, default)


def _constant(values: Sequence[Any], kind: type[int] | type[float], cast: str, default: str) -> Constant:
    """Numbers one behind the other, each as one of `kind`, or as the cast says."""
    data = b"".join(_bytes(kind(value), cast, default) for value in values)
    return Constant(data + bytes(PADDING), _LETTER_OF_CAST.get(cast, "q" if kind is int else "f"))


def _bytes(value: float, cast: str, default: str) -> bytes:
    """A number as torch hands it over: float32 and int64, or what `arg_casts` says."""
    if cast and cast not in _CASTS:
        raise RuntimeError(f"Unsupported cast instruction {default}")
    if cast in _INTEGERS:
        code, bits = _INTEGERS[cast]
        wrapped = int(value) & ((1 << bits) - 1)
        if code != "B" and wrapped >> (bits - 1):
            wrapped -= 1 << bits
        return struct.pack(code, wrapped)
    if cast:
        dtype = torch.float16 if cast == "fp16" else torch.bfloat16
        return torch.tensor([value], dtype=dtype).view(torch.uint8).numpy().tobytes()
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise RuntimeError(_CAST.format(int))
        return struct.pack("q", value)
    try:
        return struct.pack("f", value)
    except OverflowError:  # beyond the largest float32
        return struct.pack("f", math.copysign(math.inf, value))
