"""How much two sketches of the same tensor differ, and how much of that rounding explains."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from anymps.compare._trace import Bound, Sketch, Value

_ROUNDOFF: Final = {
    "float64": 2.0**-53,
    "complex128": 2.0**-53,
    "float32": 2.0**-24,
    "complex64": 2.0**-24,
    "float16": 2.0**-11,
    "complex32": 2.0**-11,
    "bfloat16": 2.0**-8,
}
"""The unit roundoff of each dtype; of the 8-bit floats, that of 3 bits."""

_whatever_order: Final = attrgetter("dtype", "count", "low", "high", "nans", "infinities")
"""What a sketch says of its elements in any order, but for their sum, which is rounded."""

# Operators whose terms are products of two inputs; the terms of the others are elements of one.
_PRODUCTS: Final = (
    *("mm", "bmm", "mv", "dot", "vdot", "matmul", "addmm", "baddbmm", "addbmm", "addmv", "linear", "inner", "einsum"),
    *("convolution", "conv", "mps_convolution", "linear_backward", "convolution_backward"),
)


def roundoff(dtype: str) -> float:
    """Half the distance from 1 to the next number; 0 of what is not rounded."""
    return _ROUNDOFF.get(dtype, 2.0**-4 if dtype.startswith("float8") else 0.0)


def is_same(one: Sketch, other: Sketch) -> bool:
    """Whether both are the same bytes, in any shape."""
    return one.dtype == other.dtype and one.digest == other.digest


def is_reordered(one: Sketch, other: Sketch) -> bool:
    """Whether both seem to hold the same elements in another order, as a tensor and its transpose do."""
    return _whatever_order(one) == _whatever_order(other) and abs(one.total - other.total) <= _slack(one, other)


def distance(one: Sketch, other: Sketch) -> float:
    """The largest difference that the sketches show; infinite if NaN, infinities or the numbers of elements differ.

    It is the largest among the kept elements, the smallest and largest values, and the means. None of these can differ
    by more than the tensors do, so a tensor within a bound never exceeds it here. Shapes count by their elements alone:
    one operator in pieces may fold dimensions, as attention does for `bmm`.
    """
    if one.count != other.count or one.nans != other.nans or one.infinities != other.infinities:
        return math.inf
    if one.digest == other.digest and one.dtype == other.dtype:
        return 0.0
    difference = [abs(one.low - other.low), abs(one.high - other.high)]
    if one.count:
        difference.append(max(0.0, abs(one.total - other.total) - _slack(one, other)) / one.count)
    difference += [_of_elements(*pair) for pair in zip(one.elements, other.elements, strict=False)]
    return max(difference)


def _slack(one: Sketch, other: Sketch) -> float:
    """How far apart two sums of the same elements may be: they are rounded in float64."""
    return 2.0**-48 * one.count * max(one.size, other.size)


def _of_elements(one: float, other: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    difference = abs(one - other)
    return difference if math.isfinite(difference) else math.inf


def relative(one: Sketch, other: Sketch) -> float:
    """The difference relative to the largest value."""
    difference = distance(one, other)
    size = max(one.size, other.size)
    return difference / size if size and math.isfinite(difference) else math.inf if difference else 0.0


def allowed(name: str, bound: Bound, inputs: Sequence[Sketch], one: Sketch, other: Sketch) -> float:
    """How much two results, both computed from `inputs`, may differ by rounding alone.

    Twice the bound of one. The size of a sum's terms is estimated from the root mean squares of the inputs; the limit
    is never above twice what PyTorch's own tests of mps allow, relative to the largest value of the result.
    """
    if bound.kind == "exact":
        return 0.0
    size = max(one.size, other.size)
    most = 2 * (bound.limit * size + bound.least)
    if bound.kind in ("tested", "step"):
        return most
    scale = size
    if bound.of_input:
        scale = max([size, *(sketch.size for sketch in inputs)])
    if bound.kind == "sum":
        rms = sorted((sketch.rms for sketch in inputs if sketch.is_floating), reverse=True)
        product = name in _PRODUCTS or "attention" in name
        terms = rms[0] * rms[1] if product and len(rms) > 1 else rms[0] if rms else 0.0
        scale = max(size, bound.terms * terms)
    return min(2 * (bound.relative * scale + bound.absolute), most)


def closest(left: Sequence[Value], right: Sequence[Value]) -> Iterator[tuple[Sketch, Sketch]]:
    """The tensors that correspond to each other: those with the same bytes, else the nearest with as many elements.

    What has no partner is left out.
    """
    waiting = [value.sketch for value in right]
    later = []
    for value in left:
        partner = next((sketch for sketch in waiting if is_same(value.sketch, sketch)), None)
        if partner is None:
            later.append(value.sketch)
        else:
            waiting.remove(partner)
            yield value.sketch, partner
    for sketch in later:
        fitting = [other for other in waiting if other.count == sketch.count]
        if fitting:
            nearest = min(fitting, key=functools.partial(_unlikeness, sketch))
            waiting.remove(nearest)
            yield sketch, nearest


def _unlikeness(one: Sketch, other: Sketch) -> tuple[bool, float, bool]:
    """The smaller, the likelier is it that both are one tensor."""
    return not is_reordered(one, other), distance(one, other), one.shape != other.shape
