"""Operators that take numbers together: sums, means, extremes and norms.

Sums, means, extremes and truth run as the device would with `kernels="real"`, in all layouts; norms along the last
dimension. Source: the arguments that the kernels of torch 2.13's macOS wheel describe.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from anymps.kernels import KernelLibrary, Launcher

from .compare import Difference
from .launches import NAMES, run_described
from .values import DTYPES, line

Outs = tuple[torch.Tensor, ...]
Launch = Callable[[KernelLibrary, torch.Tensor, Outs, str], bool]
"""Runs the kernel for an input, into results of the device's shapes and types; False if there is none."""

_SHAPES, _LARGE = ((7, 3), (5, 33), (4, 300), (3, 1000)), (40, 700)
"""Rows and columns: less than a SIMD group, a little more, several; and sums in two passes."""
_LAID: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (lambda x: x, lambda x: x.t(), lambda x: x.repeat(2, 1, 1))
_LANES = 32


@dataclass(frozen=True)
class RowOperator:
    """An operator over the last dimension of a matrix: its call on the device, and the launch of its kernel."""

    title: str
    kernel: str
    call: Callable[[torch.Tensor], Any]
    launch: Launch


def _inner(kernel: str, *more: float) -> Launch:
    """A SIMD group for each row."""

    def launch(library: KernelLibrary, x: torch.Tensor, outs: Outs, name: str) -> bool:
        del name
        full = f"{kernel}_{NAMES[x.dtype]}_{NAMES[outs[0].dtype]}"
        if full not in library:
            return False
        library[full](x, outs[0], list(x.shape), *more, threads=-(-x.shape[0] // 8) * 256, group_size=256)
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
    mean, deviation = (torch.zeros(x.shape[0], dtype=x.dtype, device="mps") for _ in range(2))
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


_REDUCED = ("sum", "nansum", "mean", "amax", "amin")
ROWS: tuple[RowOperator, ...] = (
    RowOperator("argmax", "argmax_reduction", lambda x: x.argmax(-1), _inner("argmax_reduction_inner")),
    RowOperator("argmin", "argmin_reduction", lambda x: x.argmin(-1), _inner("argmin_reduction_inner")),
    RowOperator("norm, 1", "norm_l1_reduction", lambda x: x.norm(1, 1), _inner("norm_l1_reduction_inner", 0.0)),
    RowOperator("norm, 2", "norm_l2_reduction", lambda x: x.norm(2, 1), _inner("norm_l2_reduction_inner", 0.0)),
    RowOperator("nn.functional.rms_norm", "rms_norm", _call_rms, _rms_norm),
    RowOperator("nn.functional.layer_norm", "layer_norm", _call_norm, _layer_norm),
)


def _matrices(dtype: torch.dtype, *shapes: tuple[int, int]) -> Iterator[torch.Tensor]:
    """Random matrices of several widths, with many equal values; without NaN and infinity where a sum would be one."""
    for rows, columns in shapes:
        values = line(dtype, rows)[30:]
        if not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
            values = values % 7
        picked = torch.randint(len(values), (rows, columns), generator=torch.Generator().manual_seed(columns))
        yield values[picked]


def compare_rows(library: KernelLibrary, operator: RowOperator, dtype: torch.dtype) -> Difference | None:
    """One operator over matrices of a dtype; None if the device refuses them or no kernel has them."""
    found = Difference()
    for given in _matrices(dtype, *_SHAPES):
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


def compare_reductions(
    library: KernelLibrary, release: tuple[int, int], names: set[str]
) -> Iterator[tuple[str, torch.dtype, Difference]]:
    """Each operator that the launcher describes, over a dimension and over all, by the kernel that the host takes."""
    launcher = Launcher(library, release)
    for name in _REDUCED:
        for dtype in DTYPES if not names or name in names else ():
            found = Difference()
            for x in _matrices(dtype, *_SHAPES, _LARGE):
                for laid, dim in itertools.product(_LAID, (0, 1, None)):
                    try:
                        lying = laid(x.to("mps"))
                    except RuntimeError:
                        continue  # no such layout on a Mac: repeated complex numbers up to torch 2.11
                    _reduce(launcher, getattr(torch, name), lying, {} if dim is None else {"dim": dim}, found)
            if found.elements:
                yield name, dtype, found


def _reduce(
    launcher: Launcher, call: Callable[..., torch.Tensor], x: torch.Tensor, dims: dict[str, int], found: Difference
) -> None:
    def reduced(x: torch.Tensor) -> torch.Tensor:
        return call(x, **dims)

    try:
        result = reduced(x)
    except (RuntimeError, NotImplementedError, TypeError):
        return
    by_kernel = run_described(launcher, reduced, (x,))
    if by_kernel is not None:
        found.add(result.cpu(), by_kernel[0].reshape(result.shape), (result.cpu(),))
