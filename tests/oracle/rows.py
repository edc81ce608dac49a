"""Operators whose kernels take rows: sums, means, extremes and norms along the last dimension.

Source: the arguments that the kernels of torch 2.13's macOS wheel describe; a SIMD group, or a group of threads, a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from anymps.metal.kernels import KernelLibrary

from .compare import Difference
from .launches import NAMES
from .values import line

Outs = tuple[torch.Tensor, ...]
Launch = Callable[[KernelLibrary, torch.Tensor, Outs, str], bool]
"""Runs the kernel for an input, into results of the device's shapes and types; False if there is none."""

_SHAPES = ((7, 3), (5, 33), (4, 300), (3, 1000))
_LANES = 32


@dataclass(frozen=True)
class RowOperator:
    """An operator over the last dimension of a matrix: its call on the device, and the launch of its kernel."""

    title: str
    kernel: str
    call: Callable[[torch.Tensor], Any]
    launch: Launch


def _inner(kernel: str, *more: float, mean: bool = False) -> Launch:
    """A SIMD group for each row; a mean is a sum with a divisor."""

    def launch(library: KernelLibrary, x: torch.Tensor, outs: Outs, name: str) -> bool:
        del name
        result = "uchar" if outs[0].dtype == torch.bool else NAMES[outs[0].dtype]
        full = f"{kernel}_{NAMES[x.dtype]}_{result}"
        if full not in library:
            return False
        library[full](
            x,
            outs[0],
            list(x.shape),
            *(float(x.shape[1]) if mean else one for one in more),
            threads=x.shape[0] * _LANES,
            group_size=256,
        )
        return True

    return launch


def _rms_norm(library: KernelLibrary, x: torch.Tensor, outs: Outs, name: str) -> bool:
    full = f"rms_norm_{NAMES[x.dtype]}"
    if full not in library:
        return False
    width = -(-x.shape[1] // (4 * _LANES)) * _LANES
    weight = torch.ones(x.shape[1], dtype=x.dtype, device="mps")
    library[full](x, weight, outs[0], 1e-5, x.shape[1], 1, threads=x.shape[0] * width, group_size=width)
    return True


def _layer_norm(library: KernelLibrary, x: torch.Tensor, outs: Outs, name: str) -> bool:
    full = f"layer_norm_single_row_{NAMES[x.dtype]}"
    if full not in library:
        return False
    width = -(-x.shape[1] // (4 * _LANES)) * _LANES
    mean, deviation = (torch.empty(x.shape[0], dtype=x.dtype, device="mps") for _ in range(2))
    weight, bias = (
        torch.ones(x.shape[1], dtype=x.dtype, device="mps"),
        torch.zeros(x.shape[1], dtype=x.dtype, device="mps"),
    )
    numbers = (x.shape[1], 1e-5, 1, 1, weight, bias)
    library[full](x, outs[0], mean, deviation, *numbers, threads=x.shape[0] * width, group_size=width)
    return True


def _call_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[1:], eps=1e-5)


def _call_rms(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[1:], eps=1e-5)


_REDUCED: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[float, ...]]] = {
    "sum": (lambda x: x.sum(1), (0.0,)),
    "nansum": (lambda x: x.nansum(1), (0.0,)),
    "count_nonzero": (lambda x: x.count_nonzero(1), (0.0,)),
    "any": (lambda x: x.any(1), ()),
    "all": (lambda x: x.all(1), ()),
    "argmax": (lambda x: x.argmax(1), ()),
    "argmin": (lambda x: x.argmin(1), ()),
    "max": (lambda x: x.amax(1), ()),
    "min": (lambda x: x.amin(1), ()),
}
ROWS: tuple[RowOperator, ...] = (
    *(
        RowOperator(
            {"max": "amax", "min": "amin"}.get(name, name),
            f"{name}_reduction",
            call,
            _inner(f"{name}_reduction_inner", *more),
        )
        for name, (call, more) in _REDUCED.items()
    ),
    RowOperator("mean", "mean, sum_reduction", lambda x: x.mean(1), _inner("sum_reduction_inner", 0.0, mean=True)),
    RowOperator("norm, 1", "norm_l1_reduction", lambda x: x.norm(1, 1), _inner("norm_l1_reduction_inner", 0.0)),
    RowOperator("norm, 2", "norm_l2_reduction", lambda x: x.norm(2, 1), _inner("norm_l2_reduction_inner", 0.0)),
    RowOperator("nn.functional.rms_norm", "rms_norm", _call_rms, _rms_norm),
    RowOperator("nn.functional.layer_norm", "layer_norm", _call_norm, _layer_norm),
)


def compare_rows(library: KernelLibrary, operator: RowOperator, dtype: torch.dtype) -> Difference | None:
    """One operator over matrices of a dtype; None if the device refuses them or no kernel has them."""
    found = Difference()
    for given in _matrices(operator, dtype):
        x = given.to("mps")
        try:
            results = operator.call(x)
        except (RuntimeError, NotImplementedError, TypeError):
            continue
        results = results if isinstance(results, tuple) else (results,)
        outs = tuple(torch.zeros_like(one).contiguous() for one in results)
        if operator.launch(library, x, outs, operator.kernel):
            for device, kernel in zip(results, outs, strict=True):
                found.add(device.cpu(), kernel.cpu(), (device.cpu(),))
    return found if found.elements else None


def _matrices(operator: RowOperator, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Random matrices of several widths, with many equal values; without NaN and infinity where a sum would be one."""
    for rows, columns in _SHAPES:
        values = line(dtype, rows)[30:]
        if not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
            values = values % 7
        picked = torch.randint(len(values), (rows, columns), generator=torch.Generator().manual_seed(columns))
        yield values[picked]
