"""Operators that take the numbers of a matrix together: sums, means, extremes, norms; and the matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
import torch.nn.functional as F

from .values import line

MATRICES: Final = ((7, 3), (5, 33), (4, 300), (3, 1000), (40, 700))
"""Rows and columns: less than a SIMD group, a little more, several, and sums in two passes."""

LAID: Final[tuple[Callable[[torch.Tensor], torch.Tensor], ...]] = (
    lambda x: x,
    lambda x: x.t(),
    lambda x: x.repeat(2, 1, 1),
)
"""How matrices are laid out before they are reduced over a dimension, or over all."""

ROWS: Final[dict[str, tuple[Callable[..., Any], bool]]] = {
    "sum": (torch.sum, True),
    "nansum": (torch.nansum, True),
    "mean": (torch.mean, True),
    "count_nonzero": (torch.count_nonzero, True),
    "any": (torch.any, True),
    "all": (torch.all, True),
    "amax": (torch.amax, True),
    "amin": (torch.amin, True),
    "prod": (torch.prod, True),
    "argmax": (lambda x: x.argmax(-1), False),
    "argmin": (lambda x: x.argmin(-1), False),
    "norm, 1": (lambda x: x.norm(1, -1), False),
    "norm, 2": (lambda x: x.norm(2, -1), False),
    "std": (lambda x: x.std(-1), False),
    "cumsum": (lambda x: x.cumsum(-1), False),
    "sort": (lambda x: x.sort(dim=-1, stable=True), False),
    "softmax": (lambda x: x.softmax(-1), False),
    "log_softmax": (lambda x: x.log_softmax(-1), False),
    "logsumexp": (lambda x: x.logsumexp(-1), False),
    "nn.functional.layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), False),
    "nn.functional.rms_norm": (lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5), False),
    "mm": (lambda x: x @ x.mT, False),
}
"""Each call, and whether it takes `dim`: over which dimensions it is asked then."""


def matrices(dtype: torch.dtype, *shapes: tuple[int, int]) -> Iterator[torch.Tensor]:
    """Random matrices of several widths, with many equal values; without NaN and infinity where a sum would be one."""
    for rows, columns in shapes:
        values = line(dtype, rows)[30:]
        if not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
            values = values % 7
        picked = torch.randint(len(values), (rows, columns), generator=torch.Generator().manual_seed(columns))
        yield values[picked]
