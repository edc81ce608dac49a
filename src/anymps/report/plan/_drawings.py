"""The drawing of a plan's page, as numbers for its template: horizontal places in per cent, heights in pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from anymps.plan import MacTime
from anymps.report.plan import _choice_words as choice_words

_FIRST_ROW, _ROW = 44, 40

_TICK: Final = 14  # per cent between two names of an axis: on a phone they need as much


def choice_drawing(choices: Sequence[MacTime], own: MacTime | None) -> dict[str, Any] | None:
    """How fast each Mac is: a bar from nothing, with its interval; None where no time is predicted.

    The bars are how many times as fast it is as one's own Mac, else samples a second, or steps a second where the batch
    is not known.
    """
    rows: list[dict[str, Any]] = []
    values = [_speed(choice) for choice in choices]
    widest = max((high for _, _, high in filter(None, values)), default=0.0)
    if not widest:
        return None
    for place, (choice, value) in enumerate(zip(choices, values, strict=True)):
        low, at, high = (round(100 * part / widest, 3) for part in value or (0.0, 0.0, 0.0))
        rows.append(
            {
                "top": _FIRST_ROW + _ROW * place,
                "name": choice_words.said(choice),
                "verdict": choice.verdict.value,
                "timed": value is not None,
                "low": low,
                "width": round(high - low, 3),
                "at": at,
            }
        )
    yours = own.mac.name if own is not None and own.time is not None else ""
    what = "Samples a second" if any(choice.samples is not None for choice in choices) else "Steps a second"
    what = f"Speed against {yours}" if yours else what
    unit = "x" if yours else "/s"
    said = "; ".join(row["name"] for row in rows)
    return {
        "label": f"{what} on each Mac. {said}. The table has the numbers.",
        "what": what,
        "height": _FIRST_ROW + _ROW * len(rows),
        "rows": rows,
        "ticks": [{"at": round(100 * tick / widest, 3), "name": f"{tick:,g}{unit}"} for tick in _ticks(widest)],
    }


def _speed(choice: MacTime) -> tuple[float, float, float] | None:
    """Its speed against one's own, else samples or steps a second, with the ends of the interval."""
    if choice.time is None:
        return None
    if choice.speed is not None:
        return choice.speed.low, choice.speed.value, choice.speed.high
    at = choice.samples if choice.samples is not None else 1 / choice.time.seconds
    return at * choice.time.seconds / choice.time.high, at, at * choice.time.seconds / choice.time.low


def _ticks(widest: float) -> list[float]:
    """Round values on a scale from nothing, so far apart that their names have room."""
    power = 10.0 ** math.floor(math.log10(widest))
    step = next(digit * power for digit in (0.2, 0.5, 1, 2, 5) if 100 * digit * power / widest >= _TICK)
    return [step * number for number in range(1, int(0.96 * widest / step) + 1)]
