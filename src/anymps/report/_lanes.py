"""The parts of a timeline's drawing: lanes of spans below each other, a queue, marks for waits, and a time axis.

Times are in nanoseconds since the step's start; horizontal places in per cent, heights in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from anymps.report import _text as text

LaneKind = Literal["parts", "bars", "queue", "waits"]

_FIRST: Final = 14  # the base line of the first title; the axis begins below it
_HEIGHTS: Final[dict[LaneKind, int]] = {"parts": 58, "bars": 50, "queue": 50, "waits": 60}
TICKS: Final = 5  # parts of an axis at most
_MOST_ROWS: Final = 200  # of the table
_NARROWEST: Final = 0.05  # per cent: about half a pixel


def lane(kind: LaneKind, title: str, spans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A lane of spans: `parts` hold their names, `bars` lie on a rail, `waits` have a mark each, a `queue` ramps."""
    return {"kind": kind, "title": title, "spans": spans}


def span(
    start: float, length: float, whole: float, name: str, look: str, *words: str, title: str = ""
) -> dict[str, Any]:
    """A span of a drawing that is `whole` long, with the name that it has room for.

    Where a mouse rests on it, it shows a `title`: by default its name, its length and the `words`.
    """
    return {
        **_place(start, length, whole),
        "name": name,
        "label": _label(name, 100 * length / whole),
        "look": look,
        "title": title or ", ".join([text.clean(name), text.duration(length) or "0 ns", *words]),
    }


def calls_words(calls: int) -> list[str]:
    """How many calls a span stands for, if several."""
    return [text.plural(calls, "call")] if calls > 1 else []


def row(start: float, length: float, track: str, what: str, where: str, calls: int = 1) -> dict[str, str]:
    """A row of the table that says the same; of several calls `what` names one."""
    return {
        "start": text.duration(start) or "0",
        "length": text.duration(length) or "0",
        "track": track,
        "what": what if calls == 1 else f"{what} and more, {calls} calls",
        "where": where,
    }


def drawing(
    lanes: Iterable[dict[str, Any]],
    length: float,
    sentence: str,
    caption: str,
    rows: Sequence[dict[str, str]],
    legend: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """A whole timeline: its lanes from top to bottom, and the table that says the same, up to an end.

    The legend says what the looks of the host's spans mean.
    """
    placed, top = [], _FIRST
    for track in lanes:
        placed.append({**track, "y": top})
        top += _HEIGHTS[track["kind"]]
    return {
        "sentence": sentence,
        "label": f"Tracks over time. {sentence}{' The table below has the same numbers.' if rows else ''}",
        "caption": caption,
        "ticks": _ticks(length),
        "lanes": placed,
        "legend": legend,
        "height": top,
        "table": rows[:_MOST_ROWS],
        "left_out": max(len(rows) - _MOST_ROWS, 0),
    }


def round_(number: float) -> float:
    """Places of a drawing, no finer than eyes and files need."""
    return round(number, 3)


def _label(name: str, width: float) -> str:
    """How much room the name of a span has, in a drawing that is `width` per cent of its own wide."""
    # 8 pixels a character and 6 before them, on a drawing of 290, 560 or 920 pixels: a phone, a tablet, a desk.
    pixels = 8 * len(name) + 6
    for kind, narrowest in (("label", 290), ("label mid", 560), ("label wide", 920)):
        if width * narrowest >= 100 * pixels:
            return kind
    return ""


def _ticks(length: float) -> list[dict[str, Any]]:
    """Marks at round times: as many as a narrow screen has room for."""
    rough = length / TICKS
    power = 10 ** math.floor(math.log10(rough))
    each = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [
        {"at": round_(100 * part * each / length), "label": text.duration_short(part * each)}
        for part in range(math.floor(length / each) + 1)
    ]


def _place(offset: float, length: float, whole: float) -> dict[str, float]:
    width = max(100 * length / whole, _NARROWEST)
    return {"at": round_(min(100 * offset / whole, 100 - _NARROWEST)), "width": round_(width)}
