"""Which element types a checkpoint for mps may hold, which become narrower, and how many values that changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anymps._threads import torch_threads

if TYPE_CHECKING:
    import torch

NARROWER: Final = {"float64": "float32", "complex128": "complex64"}
"""What cannot be on mps (torch 2.13, aten/src/ATen/mps/EmptyTensor.cpp), and what takes its place."""

# Quantized types, bits and types with several elements a byte are left out on purpose: they are refused by name.
# fmt: off
_KEPT: Final = frozenset((
    "float32", "float16", "bfloat16", "complex64", "complex32", "int64", "int32", "int16", "int8", "uint8", "bool",
    "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
))
# fmt: on
_EXACT: Final = float(1 << 24)  # float32 holds every whole number up to here
_PIECE: Final = 1 << 19  # elements that are compared at once


@dataclass
class Loss:
    """Values that were finite in float64 and are not the same in float32."""

    overflowed: int = 0
    """Beyond float32's range: they became inf."""
    integers: int = 0
    """Whole numbers (step counts, indices) that float32 rounds to another one; exact up to 2**24."""


def dtype_name(dtype: torch.dtype) -> str:
    """`float64`."""
    return str(dtype).removeprefix("torch.")


def is_known(dtype: torch.dtype) -> bool:
    """Whether tensors of the type can be converted, or kept as they are."""
    return dtype_name(dtype) in _KEPT or dtype_name(dtype) in NARROWER


def narrowed(wide: torch.Tensor, loss: Loss) -> torch.Tensor:
    """The float64 elements of a flat tensor as float32; what is lost is added to `loss`."""
    import torch

    narrow = torch.empty(wide.shape, dtype=torch.float32)
    # Pieces are too small to share: several threads take seven times the processor time, most of it waiting.
    with torch_threads(1):
        for old, new in zip(torch.split(wide, _PIECE), torch.split(narrow, _PIECE), strict=True):
            new.copy_(old)
            if not old.numel():
                continue
            low, high = torch.aminmax(old)
            # Nothing that is counted lies within these bounds. A NaN is not within them, and is looked at below.
            if not (low >= -_EXACT and high <= _EXACT):
                changed = (new.double() != old) & old.isfinite()
                infinite = changed & new.isinf()
                loss.overflowed += int(infinite.sum())
                loss.integers += int((changed & ~infinite & (old == old.trunc())).sum())
    return narrow
