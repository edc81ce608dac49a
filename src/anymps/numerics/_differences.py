"""Where a result lies further from the expected one than its bound allows: how many elements, and the worst."""

from __future__ import annotations

import enum
from dataclasses import dataclass

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
    if found.numel() == 0:
        return None
    if _all_within(expected, found, bound, scale):
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


def _all_within(expected: torch.Tensor, found: torch.Tensor, bound: Bound, scale: torch.Tensor | None) -> bool:
    """Whether nothing more needs to be asked: the common case, in few operators. NaN and infinity are never within."""
    if not (found.dtype.is_floating_point or found.dtype.is_complex):
        return torch.equal(expected.to(found.dtype), found)
    exact = expected.to(torch.complex128 if found.dtype.is_complex else torch.float64)
    distance = (found.to(exact.dtype) - exact).abs()
    allowed = bound.allowed(exact, scale)
    if bound.kind is not Kind.TESTED:
        allowed = allowed - bound.absolute  # zeros for subnormal numbers are looked at
    return bool(((distance <= allowed) & (distance < float("inf"))).all())


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
