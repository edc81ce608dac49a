"""The scatters of a step that add to its tensors, whose additions may wait for each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import fsum
from typing import Final, NamedTuple

from anymps.cost import OperatorCall, conflict_time, read_tensor
from anymps.forecast._forecast import Forecast

SCATTERS: Final = tuple(
    f"aten::{name}{form}{overload}"
    for name, overload in (("index_add", ""), ("scatter_add", ""), ("scatter_reduce", ".two"))
    for form in ("", "_")
)


class Scatters(NamedTuple):
    """Those of a step whose additions wait for each other.

    The largest is `name`: it adds so many `times` to so many `places`. Together they take `seconds` at least, and
    `longest` if all indices of each name one place.
    """

    name: str
    times: int
    places: int
    seconds: float
    longest: float


def scatters_of(step: Forecast) -> Scatters | None:
    """None where no additions wait, on this Mac and with this release of torch."""
    calls = [one.call for one in step.happenings if one.call is not None and one.call.operator in SCATTERS]
    waiting = [call for call in calls if conflict_time(call, step.mac, step.torch)]
    if not waiting:
        return None
    largest = max(waiting, key=lambda call: _along(call, 1))
    times, places = _along(largest, 1), _along(largest, 0)
    longest = _together(map(_onto_one_place, waiting), step)
    return Scatters(largest.name, times, places, _together(waiting, step), longest)


def _together(calls: Iterable[OperatorCall], step: Forecast) -> float:
    return fsum(conflict_time(call, step.mac, step.torch) for call in calls)


def _along(call: OperatorCall, which: int) -> int:
    """The size of an input along the axis: that of the table is the number of places, that of the index how often."""
    shape = read_tensor(call.inputs[which]).shape
    return shape[(call.axis or 0) % len(shape)] if shape else 1


def _onto_one_place(call: OperatorCall) -> OperatorCall:
    """The call as it is if all its indices are equal."""
    table, axis = read_tensor(call.inputs[0]), call.axis or 0
    sizes = [1 if at == axis % len(table.shape) else size for at, size in enumerate(table.shape)]
    return replace(call, inputs=(f"{table.dtype}[{', '.join(map(str, sizes))}]", *call.inputs[1:]))
