"""Where a result is further from the expected one than its bound allows: how many elements, and the worst."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final

import torch

from anymps.numerics._bounds import _REAL, Bound, Kind


class Loudness(enum.IntEnum):
    """What kind of difference it is, the loudest first."""

    NOT_FINITE = 0  # NaN or infinity where the expected number is finite, or the reverse
    NUMBER = 1
    FLUSHED = 2  # zero for a subnormal number


@dataclass(frozen=True)
class Difference:
    """The elements of one result that are wrong, of the loudest kind that it has.

    `index` is that of the worst element, with its `expected` and `found` number and the distance `allowed` there.
    `wrong` counts the elements of this kind, `count` all of the result.
    """

    loudness: Loudness
    wrong: int
    count: int
    index: tuple[int, ...]
    expected: complex | float | int | bool
    found: complex | float | int | bool
    allowed: float

    @property
    def share(self) -> float:
        """The share of wrong elements, above 0 and at most 1."""
        return self.wrong / self.count


def differences(
    expected: torch.Tensor,
    found: torch.Tensor,
    bound: Bound,
    *,
    scale: torch.Tensor | None = None,
    allowance: torch.Tensor | None = None,
    excused: torch.Tensor | None = None,
) -> Difference | None:
    """The loudest difference of `found` from `expected` beyond `bound`; None where there is none.

    Both are CPU tensors of the same sizes; `expected` may be of a wider type. A number that is the expected one rounded
    to the dtype of `found` is never wrong, nor is NaN for NaN, nor infinity where the bound reaches the dtype's largest
    number. `scale` is that of `Bound.allowed`; `allowance` is a further distance allowed at each element; `excused`
    says which elements are right for another reason.
    """
    if expected.shape != found.shape:
        raise ValueError(f"sizes {tuple(expected.shape)} and {tuple(found.shape)} differ")
    unsettled = Unsettled(expected, found, bound)
    if not unsettled or unsettled.settle(scale):
        return None
    rounded = expected.to(found.dtype)
    same = (rounded == found) | (rounded.isnan() & found.isnan())
    if excused is not None:
        same |= excused
    if bool(same.all()):
        return None
    if not (found.dtype.is_floating_point or found.dtype.is_complex):
        return _worst(~same, expected, found, _distance(expected, found), torch.zeros(()), Loudness.NUMBER)
    wide = found.to(torch.complex128 if found.dtype.is_complex else torch.float64)
    exact = expected.to(wide.dtype)
    allowed = bound.allowed(exact, scale)
    if allowance is not None:
        allowed = allowed + allowance
    limits = torch.finfo(_REAL.get(found.dtype, found.dtype))
    distance = (wide - exact).abs()
    # Where the bound reaches the largest number, either side may have run over.
    over = torch.isfinite(exact) & (exact.abs() + allowed >= limits.max) & ~found.isnan()
    same |= over & ((wide.abs() >= limits.max / 2) | ~torch.isfinite(found))
    finite = torch.isfinite(rounded), torch.isfinite(found)
    lost = ~same & ~(finite[0] & finite[1])
    if bool(lost.any()):
        return _worst(lost, expected, found, torch.where(lost, 1.0, 0.0), allowed, Loudness.NOT_FINITE)
    wrong = ~same & (torch.nan_to_num(distance, nan=0.0, posinf=0.0) > allowed)
    flushed = (wide == 0) & (exact.abs() < limits.tiny) & (exact != 0)
    numbers = wrong & ~flushed
    if bool(numbers.any()):
        return _worst(numbers, expected, found, distance / allowed.clamp_min(limits.tiny), allowed, Loudness.NUMBER)
    flushed &= ~same
    if bool(flushed.any()):
        return _worst(flushed, expected, found, distance, allowed, Loudness.FLUSHED)
    return None


_CHUNK: Final = 32_000
"""Elements that are compared at a time: what is made of them stays in a core's cache, and they are fewer than the
32,768 from which torch has threads share the work, which wait for one another where cores are busy."""


class Unsettled:
    """The elements of a result that its bound alone does not settle, for which the more costly reasons are asked.

    Most results have none, which takes few passes over their numbers. The sizes are those of `differences`. Subnormal
    numbers, NaN and infinity are unsettled, except where both sides are the same exact number.
    """

    def __init__(self, expected: torch.Tensor, found: torch.Tensor, bound: Bound) -> None:
        self._bound, self._absolute = bound, 0.0  # zeros for subnormal numbers are looked at
        self._exact, self._found = expected.reshape(-1), found.reshape(-1)
        self._is_exact = bound.kind is Kind.EXACT or not (found.dtype.is_floating_point or found.dtype.is_complex)
        self._places = self._unequal() if self._is_exact else self._beyond()

    def __bool__(self) -> bool:
        return self._places.numel() > 0

    def settle(self, scale: torch.Tensor | None = None, allowance: torch.Tensor | None = None) -> bool:
        """Whether none is left where the bound is that of these sums of absolute values, with that much more."""
        if self._is_exact or not self:
            return not self
        exact, found = self._exact[self._places], self._found[self._places]
        distance, size = (found - exact).abs(), exact.abs()
        if scale is not None:
            size = torch.maximum(size, scale.reshape(-1)[self._places].abs().to(torch.float64))
        beyond = distance - self._bound.relative * size - self._bound.rounding * exact.abs()
        if allowance is not None:
            beyond = beyond - allowance.reshape(-1)[self._places]
        left = ~(beyond <= self._absolute)
        if scale is not None and allowance is None:
            self._places = self._places[left]
        return not bool(left.any())

    def _unequal(self) -> torch.Tensor:
        rounded = self._exact.to(self._found.dtype)
        if torch.equal(rounded, self._found):
            return torch.empty(0, dtype=torch.int64)
        return (rounded != self._found).nonzero().squeeze(-1)

    def _beyond(self) -> torch.Tensor:
        """The places of those beyond the bound, infinities and NaN among them."""
        exact = self._exact.to(torch.complex128 if self._found.dtype.is_complex else torch.float64)
        self._exact = exact
        if self._bound.kind is Kind.TESTED and exact.numel():
            self._absolute = self._bound.absolute_beside(_largest(exact))
        places = []
        for start in range(0, exact.numel(), _CHUNK):
            one, other = exact[start : start + _CHUNK], self._found[start : start + _CHUNK]
            beyond = other - one
            beyond = (beyond.abs() if beyond.is_complex() else beyond.abs_()).sub_(
                one.abs(), alpha=self._bound.relative + self._bound.rounding
            )
            if not float(beyond.max()) <= self._absolute:  # nor NaN, which infinities leave
                places.append((~(beyond <= self._absolute)).nonzero().squeeze(-1) + start)
        return torch.cat(places) if places else torch.empty(0, dtype=torch.int64)


def _largest(numbers: torch.Tensor) -> float:
    """The largest absolute value of the finite ones."""
    size = numbers.abs()
    largest = float(size.max())
    return largest if math.isfinite(largest) else float(torch.where(size.isfinite(), size, 0.0).max())


def _distance(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """How far integers lie apart, as float64: enough to find the worst."""
    return (expected.to(torch.float64) - found.to(torch.float64)).abs()


def _worst(
    wrong: torch.Tensor,
    expected: torch.Tensor,
    found: torch.Tensor,
    badness: torch.Tensor,
    allowed: torch.Tensor,
    loudness: Loudness,
) -> Difference:
    place = int(torch.where(wrong, torch.nan_to_num(badness, nan=0.0), -1.0).flatten().argmax())
    flat_allowed = allowed.expand(found.shape).flatten()
    return Difference(
        loudness=loudness,
        wrong=int(wrong.sum()),
        count=found.numel(),
        index=tuple(int(part) for part in torch.unravel_index(torch.tensor(place), found.shape)),
        expected=expected.flatten()[place].item(),
        found=found.flatten()[place].item(),
        allowed=float(flat_allowed[place]),
    )
