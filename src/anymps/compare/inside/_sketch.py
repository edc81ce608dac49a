"""Sketches of tensors: a digest of their bytes, and a few numbers, computed on the CPU."""

from __future__ import annotations

import ctypes
import hashlib
import math
from typing import Any, Final

import torch

from anymps.compare._trace import Sketch, places
from anymps.numerics import in_place

# Types whose numbers torch sums in float64 as it reads them, without a copy of the tensor in float64.
_SUMMED_WIDE: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
    whole = hashlib.sha256(content, usedforsecurity=False)  # today's processors have instructions for it
    return whole.hexdigest()[:16]


def sketched(tensor: torch.Tensor, digest: str) -> Sketch:
    """The sketch of a contiguous CPU tensor whose digest is known."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    if not tensor.numel():
        return Sketch(dtype, shape, digest)
    flat = tensor.reshape(-1)
    if flat.dtype.is_complex:
        flat = flat.abs() if flat.dtype is not torch.complex32 else flat.to(torch.complex64).abs()
    if flat.dtype not in _SUMMED_WIDE:
        flat = flat.to(torch.float64)
    elements = tuple(map(float, flat[places(flat.numel())].tolist()))
    low, high = _ends(flat)
    nans = infinities = 0
    if not (math.isfinite(low) and math.isfinite(high)):  # one NaN makes both NaN
        nans, infinities = int(flat.isnan().sum()), int(flat.isinf().sum())
        flat = flat[torch.isfinite(flat)]
        if not flat.numel():
            return Sketch(dtype, shape, digest, nans, infinities, elements=elements)
        low, high = _ends(flat)
    total = float(flat.sum(dtype=torch.float64))
    return Sketch(dtype, shape, digest, nans, infinities, low, high, total, _rms(flat, low, high), elements)


def _ends(flat: torch.Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(flat)
    return float(low), float(high)


def _rms(flat: torch.Tensor, low: float, high: float) -> float:
    scale = max(abs(low), abs(high)) if flat.dtype is torch.float64 else 1.0  # squares that float64 does not hold
    if not scale:
        return 0.0
    norm = torch.linalg.vector_norm(flat if scale == 1.0 else flat / scale, dtype=torch.float64)
    return scale * float(norm) / math.sqrt(flat.numel())
