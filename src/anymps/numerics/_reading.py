"""Tensors of the device as tensors of the CPU: in place where the device's memory is this process's own."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


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
