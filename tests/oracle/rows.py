"""Operators that take numbers together: sums, means, extremes and norms.

Sums, means, extremes and truth in all layouts; places of extremes, norms and layer norms along the last dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from anymps.kernels import KernelLibrary, Launcher

from .compare import Difference
from .launches import run_described
from .values import DTYPES, line

_SHAPES, _LARGE = ((7, 3), (5, 33), (4, 300), (3, 1000)), (40, 700)
"""Rows and columns: less than a SIMD group, a little more, several; and sums in two passes."""
_LAID: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (lambda x: x, lambda x: x.t(), lambda x: x.repeat(2, 1, 1))

_REDUCED = ("sum", "nansum", "mean", "amax", "amin")
_ROWS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "norm, 1": ("norm_l1_reduction", lambda x: x.norm(1, 1)),
    "norm, 2": ("norm_l2_reduction", lambda x: x.norm(2, 1)),
    "nn.functional.layer_norm": ("layer_norm", lambda x: F.layer_norm(x, x.shape[1:], eps=1e-5)),
}
"""By title: the kernel, and a call over the last dimension of a matrix."""


def _matrices(dtype: torch.dtype, *shapes: tuple[int, int]) -> Iterator[torch.Tensor]:
    """Random matrices of several widths, with many equal values; without NaN and infinity where a sum would be one."""
    for rows, columns in shapes:
        values = line(dtype, rows)[30:]
        if not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
            values = values % 7
        picked = torch.randint(len(values), (rows, columns), generator=torch.Generator().manual_seed(columns))
        yield values[picked]


def compare_rows(
    library: KernelLibrary, release: tuple[int, int], names: set[str]
) -> Iterator[tuple[str, str, torch.dtype, Difference]]:
    """Each operator over the last dimension of matrices."""
    launcher = Launcher(library, release)
    for title, (kernel, call) in _ROWS.items():
        for dtype in DTYPES if not names or kernel in names else ():
            found = Difference()
            for x in _matrices(dtype, *_SHAPES):
                _reduce(launcher, call, x.to("mps"), {}, found)
            if found.elements:
                yield title, kernel, dtype, found


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
