"""Tensors of the device on the CPU: in place where its memory is this process's own, and in a wider type."""

from __future__ import annotations

import ctypes
from typing import Any, Final

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


def in_place(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements of the virtual device's memory on the CPU, with the same sizes and strides, and no copy.

    For a tensor that has memory on the host substrate. What is written into one of the two is in the other; the memory
    lives as long as either.
    """
    if tensor.device.type == "cpu" or not tensor.numel():
        return tensor.detach().to("cpu")
    if tensor.is_conj() or tensor.is_neg():  # a flag says what its elements stand for
        return tensor.detach().to("cpu")
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    content = (ctypes.c_char * (span * tensor.itemsize)).from_address(tensor.data_ptr())
    here: Any = torch.frombuffer(content, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())
    here.holds = tensor  # the memory is the other's
    return here  # type: ignore[no-any-return]
