"""Batch against samples a second, in words and rows: from which batch on a larger one gains little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anymps._text import duration, duration_range
from anymps.forecast import bound_words
from anymps.report import _text as text
from anymps.report.plan._words import Rows, rate

if TYPE_CHECKING:
    from anymps.plan import Batches, BatchTime, Plan

TITLE: Final = "Batch against samples a second"

_OTHER_CALLS: Final = (
    "Samples a second with other batch sizes are unknown: with twice the batch, no whole step makes the same calls."
)
_ALIKE: Final = "All sizes share most errors, so they compare better than the intervals suggest."
_OTHERS: Final = "--mac shows another Mac."


def batch_rows(plan: Plan, width: int | None = None) -> Rows:
    """The batch sizes that fit each Mac, what a step takes with them, and how many samples a second that is.

    Where `width` characters are too few, the interval of the samples is left to the chart.
    """
    rows = [_row(batches, batch_time, len(plan.batches) > 1) for batches in plan.batches for batch_time in batches.rows]
    columns = ("batch", "a step", "80 %", "samples/s", "80 %", "speed", "bound by")
    several = len(plan.batches) > 1
    first = 1 if several else 0
    header, numbers = (("Mac",) if several else ()) + columns, 6
    if rows and width is not None and _wide(header, rows) > width:
        left_out = first + 4
        header, *rows = ((*row[:left_out], *row[left_out + 1 :]) for row in (header, *rows))
        numbers = 5
    return Rows(
        header,
        tuple(range(first, first + numbers)),
        tuple(rows),
        " ".join([*map(knee, plan.batches), _ALIKE, *(() if plan.asked else (_OTHERS,))]) if rows else "",
    )


def without_batches(plan: Plan) -> str:
    """Why samples a second by batch are not told; empty where they are, or where no step has a time."""
    return _OTHER_CALLS if plan.times and plan.other_calls else ""


def knee(batches: Batches) -> str:
    """`On M2 8GB, batch 256 reaches 92 % of the highest rate: a larger batch gives little more.`"""
    found, most = batches.knee, max(batch_time.samples for batch_time in batches.rows)
    last = batches.rows[-1].batch
    if found is None:
        which = "largest that fits" if last == batches.largest else "largest that was tried"
        return f"On {batches.mac.name}, samples a second grow up to batch {last:,}, the {which}."
    share = text.percent(found.samples, most)
    reached = f"batch {found.batch:,} reaches {share} of the highest rate"
    if found.batch < batches.own:
        reached += f" (the script's is {batches.own:,})"
    return f"On {batches.mac.name}, {reached}: a larger batch gives little more."


def speed(batches: Batches, batch_time: BatchTime) -> float:
    """How many times the samples a second of the script's own batch, or of the first one where that does not fit."""
    base = next((row for row in batches.rows if row.batch == batches.own), batches.rows[0])
    return batch_time.samples / base.samples


def _wide(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> int:
    """Characters of a table's longest cells, two apart."""
    return sum(max(map(len, column)) + 2 for column in zip(header, *rows, strict=True)) - 2


def _row(batches: Batches, batch_time: BatchTime, several: bool) -> tuple[str, ...]:
    time = batch_time.time
    mark = " (script's)" if batch_time.batch == batches.own else ""
    return (
        *((batches.mac.name,) if several else ()),
        f"{batch_time.batch:,}{mark}",
        duration(1e9 * time.seconds),
        duration_range(1e9 * time.low, 1e9 * time.high),
        rate(batch_time.samples),
        f"{rate(batch_time.low)} to {rate(batch_time.high)}",
        f"{speed(batches, batch_time):.2f}x",
        bound_words(time.bound),
    )
