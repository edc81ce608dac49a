"""Which Mac? The table that a plan begins with, in words and rows, and what stands below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from anymps._text import duration, duration_range
from anymps.forecast import bound_words
from anymps.report import _text as text
from anymps.report.plan import _words as words
from anymps.report.plan._words import Rows, rate

if TYPE_CHECKING:
    from anymps.plan import Choice, Plan

TITLE: Final = "Which Mac?"
REMARK: Final = "times are predicted"

_INTERVAL: Final = "80 %"
_TIGHT: Final = "Tight: it fits only without other allocations."
_HOST: Final = "The program's own code and data loading are not in the times."


def choice_rows(plan: Plan, width: int | None = None) -> Rows:
    """Each Mac: whether the run fits, the largest batch, a step, samples a second and what binds it.

    Where `width` characters are too few, a sentence stands for the intervals of the steps.
    """
    batch = f"batch {plan.base.batch:,}" if plan.base.batch else "as written"
    columns = ("Mac", batch, "largest", "a step", _INTERVAL, "samples/s", "bound by")
    rows = [_row(it) for it in plan.choices]
    kept = [place for place in range(len(columns)) if place < 2 or any(row[place] for row in rows)]
    short = width is not None and _wide(columns, rows, kept) > width
    if short:
        kept = [place for place in kept if columns[place] != _INTERVAL]
    return Rows(
        tuple(columns[place] for place in kept),
        tuple(number for number, place in enumerate(kept) if 2 <= place <= 5),
        tuple(tuple(row[place] for place in kept) for row in rows),
        " ".join(filter(None, _below(plan, intervals=short))),
    )


def by_memory(plan: Plan) -> str:
    """`By memory: 8 GB fails; 16 GB tight, batch 8; 18 GB batch 65,536+.`; the empty text for Macs asked about."""
    if plan.asked or not plan.times:
        return ""
    parts = []
    for row in plan.rows:
        verdict = row.outcome.verdict.value
        largest = largest_batch(row.largest_batch, row.larger_unknown) if row.largest_batch else ""
        said = [*([verdict] if verdict != "fits" or not largest else []), *([f"batch {largest}"] if largest else [])]
        parts.append(f"{row.outcome.mac.ram_gib} GB {', '.join(said)}")
    lead = "Largest batch by memory" if any(row.largest_batch for row in plan.rows) else "By memory"
    return f"{lead}: {'; '.join(parts)}."


def largest_batch(number: int | None, larger_unknown: bool) -> str:
    """`8`, `65,536+` where larger ones were not looked at, `none`, and nothing where it is not known."""
    if number is None:
        return ""
    return f"{number:,}{'+' if larger_unknown else ''}" if number else "none"


def said(it: Choice) -> str:
    """A Mac above its bar, in few characters: `M5 16GB: tight, batch up to 8, 48/s`."""
    largest = largest_batch(it.largest_batch, it.larger_unknown)
    parts = [it.verdict.value]
    if it.largest_batch:
        parts.append(f"batch up to {largest}")
    if it.samples is not None:
        parts.append(f"{rate(it.samples)}/s")
    elif it.time is not None:
        parts.append(f"{duration(1e9 * it.time.seconds)} a step")
    return f"{it.mac.name}: {', '.join(parts)}"


def more(plan: Plan) -> str:
    """The last line of the short form: what `-v` adds, beginning with what hangs on values that a plan lacks."""
    read = len(plan.base.assumptions)
    lines = text.plural(read, "line")
    lead = f"The script reads values on {lines}, and memory may hang on them: -v lists them. " if read else ""
    return (
        f"{lead}-v shows what fills the memory, the limits of each Mac, the times by batch and what to change; "
        "--report-to plan.html draws it all."
    )


def _row(it: Choice) -> tuple[str, ...]:
    largest = largest_batch(it.largest_batch, it.larger_unknown)
    time = it.time
    if time is None:
        return it.mac.name, it.verdict.value, largest, "", "", "", ""
    return (
        it.mac.name,
        it.verdict.value,
        largest,
        duration(1e9 * time.seconds),
        duration_range(1e9 * time.low, 1e9 * time.high),
        rate(it.samples),
        bound_words(time.bound),
    )


def _below(plan: Plan, *, intervals: bool) -> Iterator[str]:
    """What stands below the table."""
    yield by_memory(plan)
    if plan.times:
        yield "" if plan.asked else words.FEWEST
        yield _interval(plan) if intervals else ""
        yield _HOST
        yield from words.about_times(plan)
    if any(it.verdict.value == "tight" for it in plan.choices):
        yield _TIGHT
    yield words.larger_unknown(plan)


def _interval(plan: Plan) -> str:
    """`80 % intervals: 0.51 to 2.03 times the step.`: the widest of the Macs."""
    times = [it.time for it in plan.choices if it.time is not None]
    low = min((time.low / time.seconds for time in times), default=1.0)
    high = max((time.high / time.seconds for time in times), default=1.0)
    return f"80 % intervals: {low:.2g} to {high:.2g} times that." if times else ""


def _wide(columns: tuple[str, ...], rows: list[tuple[str, ...]], kept: list[int]) -> int:
    """Characters of the longest cells of the columns that are kept, two apart."""
    return sum(max(len(row[place]) for row in (columns, *rows)) + 2 for place in kept) - 2
