"""Inputs that are the same on every machine, and their way to the device."""

from __future__ import annotations

from typing import Any, Final

import torch

_LOST: Final = 12  # bits of 23: what is left is exact whatever a machine's last digits were


def portable(value: Any) -> Any:
    """A CPU tensor whose float32 parts have 11 bits of fraction; anything else as it is.

    Functions that make inputs round differently on two processors. A last digit more or less is gone after this.
    """
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta:
        return value
    if value.dtype == torch.complex64:
        return torch.view_as_complex(portable(torch.view_as_real(value.resolve_conj().resolve_neg())))
    if value.dtype != torch.float32 or not value.numel():
        return value
    plain = value.detach().clone(memory_format=torch.preserve_format)
    bits = plain.view(torch.int32)
    coarse = ((bits + (1 << (_LOST - 1))) & -(1 << _LOST)).view(torch.float32)
    keeps = torch.isfinite(plain) & torch.isfinite(coarse)
    rounded = torch.where(keeps, coarse, plain)
    if rounded.stride() == value.stride():
        return rounded
    # An expanded tensor has one place for several elements: it stays as it was made.
    return value if 0 in value.stride() else torch.empty_strided(value.shape, value.stride()).copy_(rounded)


def to_mps(value: Any, *, gradient: bool = False) -> Any:
    """A tensor on the device, and the CPU's name as the device's; `gradient` makes leaves of what can have one."""
    if isinstance(value, torch.Tensor):
        if value.is_meta:
            return value
        moved = value.detach().to("mps")
        return moved.requires_grad_(gradient and (moved.is_floating_point() or moved.is_complex()))
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device("mps")
    return "mps" if isinstance(value, str) and value == "cpu" else value
