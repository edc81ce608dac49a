"""Batch against samples a second, in words and rows: from which batch on a larger one gains little."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from anymps._text import estimate
from anymps.forecast import bound_words
from anymps.plan import Batches, BatchTime, Plan
from anymps.report import _text as text
from anymps.report.document import Column, Table
from anymps.report.plan._words import INTERVAL, PREDICTED_CAPTION, rate

TITLE: Final = "Batch against samples a second"

_COLUMNS: Final = (
    Column("batch", "number"),
    Column("a step", "number"),
    replace(INTERVAL, left_out=2),
    Column("samples/s", "number"),
    INTERVAL,
    Column("speed", "number"),
    Column("bound by"),
)
_OTHER_CALLS: Final = (
    "Samples a second with other batch sizes are unknown: with twice the batch, no whole step makes the same calls."
)
_ALIKE: Final = "All sizes share most errors, so they compare better than the intervals suggest."
_OTHERS: Final = "--mac shows another Mac."


def batch_table(plan: Plan) -> Table:
    """The batch sizes that fit each Mac, what a step takes with them, and how many samples a second that is."""
    several = len(plan.batches) > 1
    rows = tuple(_row(batches, batch_time, several) for batches in plan.batches for batch_time in batches.rows)
    rest = " ".join([*map(knee, plan.batches), _ALIKE, *(() if plan.asked else (_OTHERS,))]) if rows else ""
    columns = ((Column("Mac"),) if several else ()) + _COLUMNS
    return Table("batch-table", columns, rows, caption=PREDICTED_CAPTION, rest=rest, head=0 if several else None)


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
        whose = "--batch" if batches.asked else "the script's"
        reached += f" ({whose} is {batches.own:,})"
    return f"On {batches.mac.name}, {reached}: a larger batch gives little more."


def speed(batches: Batches, batch_time: BatchTime) -> float:
    """How many times the samples a second of the script's own batch, or of the first one where that does not fit."""
    base = next((row for row in batches.rows if row.batch == batches.own), batches.rows[0])
    return batch_time.samples / base.samples


def _row(batches: Batches, batch_time: BatchTime, several: bool) -> tuple[str, ...]:
    time = batch_time.time
    own = " (--batch)" if batches.asked else " (script's)"
    mark = own if batch_time.batch == batches.own else ""
    return (
        *((batches.mac.name,) if several else ()),
        f"{batch_time.batch:,}{mark}",
        *estimate(time.seconds, time.low, time.high),
        rate(batch_time.samples),
        f"{rate(batch_time.low)} to {rate(batch_time.high)}",
        f"{speed(batches, batch_time):.2f}x",
        bound_words(time.bound),
    )
