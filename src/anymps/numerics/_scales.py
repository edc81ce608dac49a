"""The scale of a result: the sums of its terms' absolute values, and how it moves when its inputs do.

Of an operator that is linear in each input, computing with the absolute values of the inputs gives the sums of the
absolute values of the terms. Of others, the result is computed again from inputs that are moved at random by one unit
roundoff each, several times: the small-sample statistical condition estimate (C. Kenney and A. Laub, SIAM Journal on
Scientific Computing 15, 1994).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, Final

import torch

from anymps.numerics._bounds import Bound, Kind, unit_roundoff
from anymps.numerics._functions import named
from anymps.numerics._operations import Operation
from anymps.numerics._reference import Change, compute, tensors_in, wide_arguments, widened

SAMPLES: Final = 4

_PERIOD: Final = 65_521
"""Signs that are drawn: a prime number, so that they repeat in step with no axis of a tensor."""

ADDITIONS: Final = ("add", "sub", "subtract", "rsub")
LINEAR: Final = named("linear")
_FACTORS: Final = ("alpha", "beta", "value")


def absolute_sums(operation: Operation, arguments: Sequence[Any], wide: Change = widened) -> list[torch.Tensor] | None:
    """For each result the sums of its terms' absolute values; None for an operator of which they are not known."""
    if operation.base == "linalg_cross":
        one, other, axis = arguments[:3]
        return [_absolute_cross(wide(one).abs(), wide(other).abs(), int(axis))]
    if operation.base not in LINEAR:
        return None
    made = wide_arguments(operation, arguments, lambda tensor: _absolute(wide(tensor)))
    sign = -1 if operation.base in ("sub", "subtract", "rsub") else 1  # a difference of absolute values is no sum
    numbers = tuple(
        sign * abs(value) if said.name in _FACTORS and isinstance(value, (int, float)) else value
        for said, value in zip(operation.arguments, made, strict=False)
    )
    fresh, written = compute(operation, numbers)
    return [*fresh, *written]


def _absolute_cross(one: torch.Tensor, other: torch.Tensor, axis: int) -> torch.Tensor:
    """The cross product with a sum in place of the difference."""
    after = [(one.roll(-step, axis), other.roll(-2 * step, axis)) for step in (1, 2)]
    return after[0][0] * after[0][1] + after[1][0] * after[1][1]


def largest_input(arguments: Sequence[Any], like: torch.Tensor) -> torch.Tensor | None:
    """At each element the largest absolute value among the inputs to it; None where their sizes don't fit."""
    found: torch.Tensor | None = None
    for tensor in (tensor for value in arguments for tensor in tensors_in(value)):
        size = widened(tensor).abs().to(torch.float64)
        try:
            size = size.expand(like.shape)
        except RuntimeError:
            return None
        found = size if found is None else torch.maximum(found, size)
    numbers = [abs(value) for value in arguments if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if found is not None and numbers:
        found = torch.clamp_min(found, max(numbers))
    return found


def moved(
    operation: Operation, arguments: Sequence[Any], expected: Sequence[Any], bound: Bound, widen: Change = widened
) -> Iterator[list[Any]]:
    """For each result how far it moves when each input moves by as much as the bound's sums may lose.

    After each of `SAMPLES` moves the furthest so far, so that who has seen enough need not go on.
    """
    roundoff = unit_roundoff(bound.dtype)
    terms = bound.terms + 2 if bound.kind is Kind.SUM else 8
    furthest: list[Any] = [None] * len(expected)
    starts = count(0, 7919)

    def disturbed(tensor: torch.Tensor) -> torch.Tensor:
        wide = widen(tensor)
        if not (wide.dtype.is_floating_point or wide.dtype.is_complex):
            return wide
        factors = (1 + roundoff * _signs()).roll(-next(starts))
        return (wide.reshape(-1) * factors.repeat(wide.numel() // _PERIOD + 1)[: wide.numel()]).view(wide.shape)

    for _ in range(SAMPLES):
        fresh, written = compute(operation, wide_arguments(operation, arguments, disturbed))
        for place, (result, exact) in enumerate(zip([*fresh, *written], expected, strict=False)):
            if result is None or exact is None or result.shape != exact.shape:
                continue
            if exact.dtype.is_floating_point or exact.dtype.is_complex:
                distance = torch.nan_to_num((result - exact).abs().to(torch.float64), nan=0.0, posinf=0.0).mul_(terms)
                furthest[place] = distance if furthest[place] is None else torch.maximum(furthest[place], distance)
        yield list(furthest)


@cache
def _signs() -> torch.Tensor:
    """1 and -1 at random; drawn once, as that takes longer than all else that is done with a number."""
    generator = torch.Generator().manual_seed(20_041_994)  # the program's own stream stays as it is
    return torch.randint(0, 2, (_PERIOD,), generator=generator, dtype=torch.float64) * 2 - 1


def _absolute(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.abs() if tensor.dtype.is_floating_point or tensor.dtype.is_complex else tensor
