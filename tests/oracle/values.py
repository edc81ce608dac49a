"""What operators are asked with: values at the edges of each type, random ones, and the samples of torch's database."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from anymps.verify.cases import database

from .operators import Operator

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex32)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*_FLOATS, *_INTEGERS, torch.bool, *_COMPLEX)
_MOST_SAMPLES = 12

Inputs = tuple[torch.Tensor, ...]


def inputs(operator: Operator, dtype: torch.dtype, *, samples: bool = True) -> Iterator[Inputs]:
    """Tensors on the CPU for calls of an operator: dense, transposed, broadcast; with `samples` the database's, too."""
    if operator.tensors == 1:
        x = line(dtype, 5)
        yield (x,)
        yield (x[: x.numel() // 4 * 4].view(4, -1).t(),)
    else:
        edges = list(itertools.product(_edges(dtype).tolist(), repeat=2))
        yield _fit(operator, *(torch.tensor([pair[at] for pair in edges], dtype=dtype) for at in (0, 1)))
        x, y = _fit(operator, line(dtype, 6), line(dtype, 7))
        yield x, y
        yield x[:60].view(6, 10).t(), y[:6]
    if samples:
        yield from _samples(operator, dtype)


def _edges(dtype: torch.dtype) -> torch.Tensor:
    """Values at which functions are odd. Subnormal numbers are not among them: a GPU takes them for zero."""
    if dtype == torch.bool:
        return torch.tensor([True, False])
    if dtype in _COMPLEX:
        return torch.tensor([0, 1, -1, 1j, -1j, 2 + 3j, -0.5 + 0.25j, 1e-3 - 2j], dtype=dtype)
    if dtype in _INTEGERS:
        info = torch.iinfo(dtype)
        return torch.tensor(
            [one for one in (0, 1, 2, 3, 7, -1, -2, -7, info.max, info.min) if one >= info.min], dtype=dtype
        )
    values = [
        0.0,
        1.0,
        0.5,
        1.5,
        2.5,
        3.0,
        1e-3,
        10.0,
        100.0,
        math.inf,
        torch.finfo(dtype).max,
        torch.finfo(dtype).tiny,
    ]
    return torch.tensor([*values, *(-one for one in values), math.nan], dtype=dtype)


def line(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Edges, then 400 random values."""
    random = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        more = torch.rand(400, generator=random) < 0.5
    elif dtype in _INTEGERS:
        low = 0 if dtype == torch.uint8 else -100
        more = torch.randint(low, 100, (400,), generator=random).to(dtype)
    elif dtype in _COMPLEX:
        more = torch.view_as_complex(torch.randn(400, 2, generator=random) * 3).to(dtype)
    else:
        wide = torch.randn(200, generator=random) * 4
        more = torch.cat([wide, torch.rand(200, generator=random) * 2 - 1]).to(dtype)
    edges = _edges(dtype)
    return torch.cat([edges, more])


def _fit(operator: Operator, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers are not divided by zero, nor the smallest by -1, nor shifted by their width: undefined on a GPU.

    The order of a polynomial is small: the kernels count up to it.
    """
    if operator.orders:
        if right.dtype == torch.bool or right.is_complex():
            return left, right
        return left, right.nan_to_num(3).clamp(0 if right.dtype == torch.uint8 else -3, 30)
    if right.dtype not in _INTEGERS:
        return left, right
    if operator.divides:
        smallest = torch.iinfo(left.dtype).min
        left = torch.where(left == smallest, torch.ones_like(left), left) if smallest else left
        return left, torch.where(right == 0, torch.ones_like(right), right)
    if operator.shifts:
        return left, right.clamp(-127, 127).abs().remainder(7)
    return left, right


def _samples(operator: Operator, dtype: torch.dtype) -> Iterator[Inputs]:
    """Samples of the database that have only tensors of that dtype."""
    info = database().get((operator.entry, ""))
    if info is None or operator.variant or dtype not in info.dtypes:
        return
    torch.manual_seed(0)
    found = 0
    for sample in info.sample_inputs("cpu", dtype):
        tensors = (sample.input, *sample.args)
        if sample.kwargs or len(tensors) != operator.tensors:
            continue
        if not all(isinstance(one, torch.Tensor) and one.dtype == dtype and one.numel() for one in tensors):
            continue
        found += 1
        if found > _MOST_SAMPLES:
            return
        yield _fit(operator, *tensors) if operator.tensors == 2 else tensors
