"""How far the results of the device and of a kernel lie apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_FAR = 64  # units in the last place; beyond that a result is another one, not a rounding
_INTEGER_OF = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


@dataclass
class Difference:
    """What was seen over all calls: elements compared, those that differ, and the first that is another number."""

    elements: int = 0
    unequal: int = 0
    flushed: int = 0
    ulps: int = 0
    far: int = 0
    example: str = ""

    @property
    def verdict(self) -> str:
        """`equal`, `ulp` or `different`."""
        return "different" if self.far else "ulp" if self.ulps else "equal"

    def add(self, device: torch.Tensor, kernel: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> None:
        """Takes in the results of one call."""
        if device.is_complex():
            for part in (0, 1):
                self.add(_real(device)[..., part], _real(kernel)[..., part], inputs)
            return
        self.elements += device.numel()
        device, kernel = device.reshape(-1), kernel.reshape(-1)
        if not device.is_floating_point():
            wrong = device != kernel
            self._note(wrong, device, kernel, inputs)
            return
        if device.dtype != torch.float16:
            tiny = torch.finfo(device.dtype).tiny
            small = (device.abs() < tiny) & (device != 0) & (kernel.abs() <= tiny)
            self.flushed += int(small.sum())
            device = torch.where(small, kernel, device)
        both_nan = device.isnan() & kernel.isnan()
        steps = (_ordered(device) - _ordered(kernel)).abs()
        steps = torch.where(both_nan, torch.zeros_like(steps), steps)
        self.unequal += int((steps != 0).sum())
        odd = (device.isnan() != kernel.isnan()) | (device.isinf() != kernel.isinf()) | (steps > _FAR)
        near = torch.where(odd, torch.zeros_like(steps), steps)
        if near.numel():
            self.ulps = max(self.ulps, int(near.max()))
        self._note(odd & ~both_nan, device, kernel, inputs)

    def _note(
        self, wrong: torch.Tensor, device: torch.Tensor, kernel: torch.Tensor, inputs: tuple[torch.Tensor, ...]
    ) -> None:
        count = int(wrong.sum())
        self.far += count
        if count and not self.example:
            at = int(wrong.nonzero()[0])
            shape = torch.broadcast_shapes(*(one.shape for one in inputs))
            given = ", ".join(
                str(one.expand(shape).reshape(-1)[at % max(one.expand(shape).numel(), 1)].item()) for one in inputs
            )
            self.example = f"of {given}: {device[at].item()} on the device, {kernel[at].item()} by the kernel"


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj().contiguous())


def _ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Floats as integers that count representable values; both zeros are neighbours, so that they differ."""
    bits = tensor.contiguous().view(_INTEGER_OF[tensor.dtype]).long()
    lowest = -(1 << (8 * tensor.element_size() - 1))
    return torch.where(bits < 0, lowest - bits - 1, bits)
