"""How far an operator's result, computed in a dtype, may be from the exact one: a bound with its source.

- Numbers that are placed, chosen or compared are exact, and so are integers.
- A function of one element may be off by the units in the last place that Metal's specification allows
  (`_functions.py`).
- A sum of n terms, in any order, is off by at most γ(n) = n u / (1 - n u) of the sum of their absolute values, where u
  is the dtype's unit roundoff (N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1 and
  equation 4.4); a product of matrices by γ(n) |A| |B| (equation 3.13). PyTorch's kernels add up half precision in
  float32 and round the result. The logarithm of a sum of exponentials is off
  by the relative error of that sum, γ(n) and that of `exp`: d log s = ds / s.
- The step of a fused optimizer is judged by how it changes a number, which a bound of the number itself would hide.
- Nothing may be further off than PyTorch's own tests of mps allow (`TestConsistency._compute_tolerances` in
  test/test_mps.py, torch 2.13); of an operator that none of these knows, that is the bound.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from anymps._text import base_name
from anymps.numerics._functions import EXACT, FUNCTIONS, ROUNDED_IF_COMPLEX, is_comparison, is_fused_step
from anymps.numerics._terms import ADDED_IN_FLOAT32, LOGARITHMS_OF_SUMS, Shape, terms_of

SUMS_SOURCE: Final = "Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1"
TESTS_SOURCE: Final = "PyTorch's own MPS tests, test/test_mps.py"


class Kind(enum.Enum):
    """Where a bound comes from."""

    EXACT = "exact"
    FUNCTION = "function"
    SUM = "sum"
    STEP = "step"
    TESTED = "tested"


_OF_EXP: Final = 8  # unit roundoffs: exp may be off by 4 ulp (Metal Shading Language Specification 4.1, table 8.1)
_OF_STEP: Final = 4  # roundings of a number that an optimizer updates: decay, difference, and those of its moments
_LOGARITHMS: Final = {"log": 1.0, "log2": 1 / math.log(2), "log10": 1 / math.log(10)}
_REAL: Final = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}

# (absolute, relative) of `_compute_tolerances`, its widest line of each dtype; float64 and others have torch.testing's.
_WIDEST: Final = {
    torch.float32: (1e-4, 3e-5),
    torch.float16: (5e-2, 5e-2),
    torch.bfloat16: (5e-2, 1e-1),
    torch.float64: (1e-7, 1e-7),
}


@dataclass(frozen=True)
class Bound:
    """How far a result may lie from the exact one.

    `relative` is in shares of the *scale* of an element: the sum of the absolute values of the terms that it is made
    of, or its own absolute value where nothing cancels. `absolute` is added to it, in the result's own units.
    `of_input` says that the scale is that of the largest input to an element. `terms` is the length of the sums.
    `rounding` is the share of the result itself that is lost when it is rounded to a narrower dtype, `change` the share
    of the distance from the number that a step of an optimizer updates.
    """

    kind: Kind
    dtype: torch.dtype
    relative: float
    absolute: float
    terms: int
    of_input: bool
    source: str
    rounding: float = 0.0
    change: float = 0.0

    def allowed(self, expected: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        """The distance allowed at each element of `expected` (float64 or complex128), as float64.

        `scale` are the sums of the terms' absolute values, of the same shape; without it, the results' own.
        """
        own = expected.abs().to(torch.float64)
        if self.kind is Kind.EXACT:
            return torch.zeros_like(own)
        size = own if scale is None else torch.maximum(own, scale.to(torch.float64))
        absolute = self.absolute
        if self.kind is Kind.TESTED and own.numel():
            absolute = self.absolute_beside(float(torch.where(own.isfinite(), own, 0.0).max()))
        allowed = self.relative * size + absolute
        return allowed + self.rounding * own if self.rounding else allowed

    def absolute_beside(self, largest: float) -> float:
        """The absolute tolerance of PyTorch's tests for a result whose largest absolute value is that.

        Their numbers are of about one; of smaller ones the tolerance is as much smaller.
        """
        return self.absolute * min(1.0, largest)

    def of_two(self) -> Bound:
        """The bound on the distance of two results that were both computed in the dtype."""
        return replace(
            self,
            relative=2 * self.relative,
            absolute=2 * self.absolute,
            rounding=2 * self.rounding,
            change=2 * self.change,
        )

    @property
    def words(self) -> str:
        """The bound in words, such as `float32 sums of 1,024 numbers`."""
        name = str(self.dtype).removeprefix("torch.")
        if self.kind is Kind.EXACT:
            return "exact"
        if self.kind is Kind.SUM:
            rounded = f", and {self.rounding:.2g} times the result" if self.rounding else ""
            return (
                f"{name} sums of {self.terms:,} numbers: {self.relative:.2g} times the sum of their absolute values"
                f"{rounded}"
            )
        if self.kind is Kind.STEP:
            return f"{self.relative:.2g} times the number before the {name} step, and {self.change:g} times its change"
        if self.kind is Kind.FUNCTION:
            units = self.relative / (2 * unit_roundoff(self.dtype))
            return f"{units:g} ulp of {name}"
        return f"relative {self.relative:g} plus absolute {self.absolute:g}, as in PyTorch's own MPS tests"


def unit_roundoff(dtype: torch.dtype) -> float:
    """u of a floating or complex dtype: half the distance from 1 to the next number."""
    return torch.finfo(_REAL.get(dtype, dtype)).eps / 2


def gamma(terms: float, roundoff: float) -> float:
    """Higham's γ(n) = n u / (1 - n u); infinite where n u reaches 1."""
    product = terms * roundoff
    return product / (1 - product) if product < 1 else float("inf")


def bound_of(
    operator: str,
    dtype: torch.dtype,
    shapes: Sequence[Shape] = (),
    result: Shape = (),
    *,
    mpsgraph: bool = False,
) -> Bound:
    """How far the result of `operator` may lie from the exact one.

    `operator` is its name (`aten::mm`, `aten::add_.Tensor`), `dtype` that of the narrowest floating tensor that takes
    part, `shapes` those of its tensor inputs in order, `result` that of the result in question. `mpsgraph` says that
    Apple's graphs compute it, whose functions may be those of fast math.
    """
    name = base_name(operator).removeprefix("_foreach_")
    if not (dtype.is_floating_point or dtype.is_complex) or is_comparison(name):
        return Bound(Kind.EXACT, dtype, 0.0, 0.0, 1, False, "")
    real = _REAL.get(dtype, dtype)
    roundoff = unit_roundoff(dtype)
    tested, limit = _WIDEST.get(real, _WIDEST[torch.float64])
    tiny = torch.finfo(real).tiny  # a GPU may take subnormal numbers for zero
    terms = terms_of(name, shapes, result)
    if terms is not None:
        rounding = 0.0
        if name in ADDED_IN_FLOAT32 and not mpsgraph and real in (torch.float16, torch.bfloat16):
            dtype, rounding, roundoff = torch.float32, roundoff, unit_roundoff(torch.float32)
        # Two more: the product of each term, and the rounding of the result.
        relative = min(gamma(terms + 2, roundoff), limit)
        # The logarithm of a sum is off by the share by which the sum is: as much near 0, where the result is small.
        least = min(gamma(terms + 2 + _OF_EXP, roundoff), tested) if name in LOGARITHMS_OF_SUMS else 0.0
        return Bound(Kind.SUM, dtype, relative, tiny + least, terms, False, SUMS_SOURCE, rounding)
    if is_fused_step(name):
        return Bound(Kind.STEP, dtype, _OF_STEP * roundoff, tiny, 1, False, TESTS_SOURCE, change=limit)
    if name in EXACT and not (dtype.is_complex and name in ROUNDED_IF_COMPLEX):
        return Bound(Kind.EXACT, dtype, 0.0, 0.0, 1, False, "")
    if accuracy := FUNCTIONS.get(name):
        ulps = accuracy.fast if mpsgraph and accuracy.fast is not None else accuracy.ulps
        # Half a unit for the rounding to the result's own dtype. Complex numbers: twice for products of two parts.
        relative = (ulps + 0.5) * 2 * roundoff * (2 if dtype.is_complex else 1)
        # The length of a complex number is off by a share of it, and its logarithm by as much, also where that is 0.
        least = _LOGARITHMS.get(name, 0.0) * (FUNCTIONS["hypot"].ulps + 0.5) * 2 * roundoff if dtype.is_complex else 0.0
        return Bound(Kind.FUNCTION, dtype, min(relative, limit), tiny + least, 1, accuracy.of_input, accuracy.source)
    return Bound(Kind.TESTED, dtype, limit, tested, 1, False, TESTS_SOURCE)
