"""Tensors on the CPU in a type that is wide enough to stand for the exact numbers."""

from __future__ import annotations

from typing import Final

import torch

_NARROW_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 of a float, complex128 of a complex dtype; integers and truth values stay."""
    if dtype.is_complex:
        return torch.complex128
    if dtype in _NARROW_FLOATS:
        return torch.float64
    return dtype


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers on the CPU, in the wide type, with the same sizes; memory of its own unless nothing changes."""
    here = tensor if tensor.device.type == "cpu" else tensor.detach().to("cpu")
    return here.detach().to(wide_dtype(here.dtype))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has strides and numbers, and is of no subclass with a meaning of its own."""
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.dtype is not torch.complex32
