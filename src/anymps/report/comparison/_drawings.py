"""The losses of two runs as a picture: both curves, with their difference below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from anymps._text import step_name
from anymps.compare import Comparison, LossPair
from anymps.report.comparison import _words as words

_POINTS: Final = 400  # of a curve
_TOP, _HEIGHT = 16, 150  # of the curves of both
_APART_TOP, _APART_HEIGHT = 196, 90
_NEAREST, _FURTHEST = -8, 0  # powers of ten of the difference: a float32's last place, and all of it


def losses_drawing(found: Comparison) -> dict[str, Any] | None:
    """Both curves over the steps, and their difference on a logarithmic scale; None without two finite losses."""
    pairs = _kept(found.losses)
    values = [value for pair in pairs for value in (pair.left, pair.right) if math.isfinite(value)]
    if len(values) < 2:
        return None
    low, high = _span(values)
    across = [place / max(len(pairs) - 1, 1) for place in range(len(pairs))]

    def height(value: float) -> float:
        return _TOP + _HEIGHT * (high - value) / (high - low)

    names = [side.name for side in found.sides]
    largest = words.percent(found.largest_difference) if found.largest_difference else "none"
    first, last = pairs[0].step + 1, pairs[-1].step + 1
    return {
        "label": f"The loss on {names[0]} and on {names[1]}, steps {first} to {last}. Largest difference: {largest}. "
        "The table below lists the values.",
        "names": names,
        "curves": [
            _points(across, [height(value) if math.isfinite(value) else None for value in curve])
            for curve in ([pair.left for pair in pairs], [pair.right for pair in pairs])
        ],
        "high": f"{high:.4g}",
        "low": f"{low:.4g}",
        "apart": _points(across, [_below(pair.difference) for pair in pairs]),
        "ticks": [
            {"top": round(_APART_TOP + _APART_HEIGHT * power / _NEAREST, 3), "name": f"1e{power}" if power else "1"}
            for power in (0, -2, -4, -6, -8)
        ],
        "first": step_name(pairs[0].step),
        "last": step_name(pairs[-1].step),
    }


def _below(difference: float) -> float:
    power = math.log10(difference) if 0 < difference < math.inf else (_NEAREST if not difference else _FURTHEST)
    return _APART_TOP + _APART_HEIGHT * min(max(power, _NEAREST), _FURTHEST) / _NEAREST


def _points(across: Sequence[float], heights: Sequence[float | None]) -> str:
    """A path in a drawing 1000 wide; it is broken where a value is not finite."""
    parts = []
    pen = "M"
    for at, top in zip(across, heights, strict=True):
        if top is None:
            pen = "M"
            continue
        parts.append(f"{pen}{round(1000 * at, 3)} {round(top, 3)}")
        pen = "L"
    return " ".join(parts)


def _kept(pairs: Sequence[LossPair]) -> list[LossPair]:
    """As many pairs as a curve has points: the one that differs most from each stretch."""
    if len(pairs) <= _POINTS:
        return list(pairs)
    edges = [place * len(pairs) // _POINTS for place in range(_POINTS + 1)]
    return [max(pairs[start:end], key=lambda it: it.difference) for start, end in pairwise(edges)]


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        edge = abs(low) / 2 or 1.0
        return low - edge, high + edge
    return low, high
