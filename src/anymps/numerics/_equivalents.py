"""Operators that mps has and the CPU lacks, computed with operators of the CPU; each takes the same arguments.

Source: torch 2.11 to 2.15, native_functions.yaml, rows with kernels for MPS alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

_aten = torch.ops.aten


def _linear_backward(
    x: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor, wanted: list[bool]
) -> tuple[torch.Tensor | None, ...]:
    rows = gradient.reshape(-1, gradient.shape[-1])
    of_input = (rows @ weight).reshape(x.shape) if wanted[0] else None
    of_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if wanted[1] else None
    return of_input, of_weight, rows.sum(0) if wanted[2] else None


def _attention(*arguments: Any, **named: Any) -> Any:
    return _aten._scaled_dot_product_attention_math(*arguments, **named)


def _max_pool2d_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> torch.Tensor:
    places = _aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[1]
    made: torch.Tensor = _aten.max_pool2d_with_indices_backward(
        gradient, x, kernel, stride, padding, dilation, ceil_mode, places
    )
    return made


EQUIVALENTS: Final[dict[str, Callable[..., Any]]] = {
    "linear_backward": _linear_backward,
    "_scaled_dot_product_attention_math_for_mps": _attention,
    "max_pool2d_backward": _max_pool2d_backward,
}
