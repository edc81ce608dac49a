"""Sketches of tensors: a digest of their bytes, and a few numbers, computed on the CPU."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import torch

from anymps.compare._trace import Sketch, places
from anymps.numerics import in_place


def readable(tensor: Any) -> bool:
    """Whether its numbers can be read: an ordinary tensor with memory, no sparse, quantized or fake one."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "mps", "cuda")
        and not tensor.is_quantized
        and not torch._is_functional_tensor(tensor)
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    )


def on_cpu(tensor: torch.Tensor, in_host_memory: bool) -> torch.Tensor:
    """The same numbers on the CPU, contiguous; without a copy where the virtual device has them in the host's memory.

    A copy through the device would be one more call of it.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return in_place(tensor) if tensor.device.type == "mps" and in_host_memory else tensor.cpu()


def digest_of(tensor: torch.Tensor) -> str:
    """Of a contiguous CPU tensor's bytes."""
    size = tensor.numel() * tensor.itemsize
    content = (ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def sketched(tensor: torch.Tensor, digest: str) -> Sketch:
    """The sketch of a contiguous CPU tensor whose digest is known."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    if not tensor.numel():
        return Sketch(dtype, shape, digest)
    flat = tensor.reshape(-1)
    if flat.dtype.is_complex:
        flat = flat.abs() if flat.dtype is not torch.complex32 else flat.to(torch.complex64).abs()
    wide = flat.to(torch.float64)
    elements = tuple(map(float, wide[places(wide.numel())].tolist()))
    finite = torch.isfinite(wide)
    nans = infinities = 0
    if not bool(finite.all()):
        nans = int(wide.isnan().sum())
        infinities = int(wide.isinf().sum())
        wide = wide[finite]
    if not wide.numel():
        return Sketch(dtype, shape, digest, nans, infinities, elements=elements)
    low, high = (float(end) for end in torch.aminmax(wide))
    total = float(wide.sum())
    size = max(abs(low), abs(high))
    rms = size * float((wide / size).square().mean().sqrt()) if size else 0.0  # without running over
    return Sketch(dtype, shape, digest, nans, infinities, low, high, total, rms, elements)
