"""Which Mac? The table that a plan begins with, in words and rows, and what stands below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from anymps._text import duration, estimate, listed, percent
from anymps.forecast import BUSY, bound_words
from anymps.plan import MacTime, Plan, Row, Verdict
from anymps.report import _text as text
from anymps.report.document import Column, Table
from anymps.report.plan import _words as words
from anymps.report.plan._words import INTERVAL, largest_batch, rate

TITLE: Final = "Which Mac?"

_INTERVAL, _SAMPLES, _TOKENS, _SPEED = 4, 5, 6, 8  # columns
_TIGHT: Final = "Tight: it fits only without other allocations."
_LOADING: Final = "The times leave out data loading, which `anymps run` includes."


def choice_table(plan: Plan) -> Table:
    """Each Mac: whether the run fits, the largest batch, a step, samples and tokens a second, what binds it, its speed.

    The speed is against one's own Mac. In the narrower table a sentence stands for the intervals of the steps, and in a
    still narrower one samples and tokens a second are left out beside speeds.
    """
    columns = (
        Column("Mac"),
        Column(f"batch {plan.base.batch:,}" if plan.base.batch else "as written", "verdict", wraps=True),
        Column("largest", "number"),
        Column("a step", "number"),
        INTERVAL,
        Column("samples/s", "number"),
        Column("tokens/s", "number"),
        Column("bound by"),
        Column("speed", "number"),
        INTERVAL,
    )
    rows = tuple(_row(choice, bool(plan.times)) for choice in plan.choices)
    caption = "Whether the run fits as it is written, the largest batch that does, and the predicted time of a step"
    table = Table("choice-table", columns, rows, caption=caption)
    kept = [place for place in range(len(columns)) if place < 2 or any(row[place] for row in rows)]
    narrow = [place for place in kept if place != _INTERVAL]
    told, told_without_intervals = (" ".join(filter(None, _below(plan, intervals=given))) for given in (False, True))
    narrower = replace(table.of_columns(narrow), rest=told_without_intervals)
    if _SPEED in kept:
        without_samples = [place for place in range(len(narrow)) if narrow[place] not in (_SAMPLES, _TOKENS)]
        narrower = replace(narrower, narrower=narrower.of_columns(without_samples))
    return replace(table.of_columns(kept), rest=told, narrower=narrower)


def by_memory(plan: Plan) -> str:
    """`By memory: 8 GB fails; 16 GB tight, batch 8; 18 GB batch 65,536+.`; the empty text for Macs asked about."""
    if plan.asked or not plan.times:
        return ""
    parts = []
    for told, rows in groupby(plan.rows, key=_memory_row):
        sizes = [row.outcome.mac.ram_gib for row in rows]
        span = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
        parts.append(f"{span} GB {told}")
    lead = "Largest batch by memory" if any(row.largest_batch for row in plan.rows) else "By memory"
    return f"{lead}: {'; '.join(parts)}."


def _memory_row(row: Row) -> str:
    """`fails`, `tight, batch 8`, or `batch 36` where it fits."""
    verdict = row.outcome.verdict
    largest = largest_batch(row.largest_batch) if row.largest_batch else ""
    if not largest:
        return verdict.value
    return f"batch {largest}" if verdict is Verdict.FITS else f"{verdict.value}, batch {largest}"


def said(choice: MacTime) -> str:
    """A Mac above its bar, in few characters: `M5 16GB: tight, batch up to 8, 48/s`."""
    largest = largest_batch(choice.largest_batch)
    parts = [choice.verdict.value]
    if choice.largest_batch:
        parts.append(f"batch up to {largest}")
    if choice.speed is not None and not choice.own:
        parts.append(times(choice.speed.value))
    elif choice.samples is not None:
        parts.append(f"{rate(choice.samples)}/s")
    elif choice.time is not None:
        parts.append(f"{duration(1e9 * choice.time.seconds)} a step")
    elif choice.no_time:
        parts.append("time unknown")
    return f"{_name(choice)}: {', '.join(parts)}"


def more(plan: Plan) -> str:
    """The last line of the short form: what `-v` adds, beginning with what hangs on values that a plan lacks."""
    read = len(plan.base.assumptions)
    lines = text.plural(read, "line")
    lead = f"The script reads values on {lines}, and memory may depend on them: -v lists them. " if read else ""
    what = ["what fills the memory", "the limits of each Mac"]
    what += ["what to change"] * bool(plan.fixes)
    return f"{lead}-v shows {listed(what)}; --report html=plan.html draws it all."


def remark(plan: Plan) -> str:
    """What stands beside the title; nothing where there are no times."""
    if not plan.times:
        return ""
    compared = any(choice.speed is not None for choice in plan.choices)
    predicted = "predicted, with 80 % intervals"
    return f"speed against {plan.own.mac.name}; {predicted}" if plan.own and compared else predicted


def times(number: float) -> str:
    """`1.6x`, `0.85x`, `12x`: two digits, and `1.0x` for what is as fast."""
    return "1.0x" if 0.95 <= number < 1.05 else f"{rate(number)}x"


def _name(choice: MacTime) -> str:
    return f"{choice.mac.name} (yours)" if choice.own else choice.mac.name


def _row(choice: MacTime, timed: bool) -> tuple[str, ...]:
    largest = largest_batch(choice.largest_batch)
    time, name = choice.time, _name(choice)
    if time is None:
        return name, choice.verdict.value, largest, "unknown" if timed and choice.no_time else "", *[""] * 6
    speed = ("", "")
    if choice.speed is not None:
        low, high = rate(choice.speed.low), rate(choice.speed.high)
        speed = ("1x", "") if choice.own else (times(choice.speed.value), f"{low} to {high}x")
    return (
        name,
        choice.verdict.value,
        largest,
        *estimate(time.seconds, time.low, time.high),
        rate(choice.samples),
        rate(choice.tokens),
        bound_words(time.bound),
        *speed,
    )


def _below(plan: Plan, *, intervals: bool) -> Iterator[str]:
    """What stands below the table."""
    yield by_memory(plan)
    if plan.times:
        yield _about_own_mac(plan.own)
        yield "" if plan.asked else words.FEWEST
        yield _interval(plan.choices) if intervals else ""
        yield _LOADING if plan.base.work is not None and plan.base.work.batches else ""
        yield _busy(plan)
        yield from words.about_times(plan)
    yield from _no_times(plan)
    if any(choice.verdict is Verdict.TIGHT for choice in plan.choices):
        yield _TIGHT
    yield words.larger_unknown(plan.no_larger, plan.problem)


def _busy(plan: Plan) -> str:
    """That other programs had the core while the run was measured; nothing where that moves no time."""
    busy = plan.base.work.busy if plan.base.work is not None else 0.0
    own = max(dict(each.time.shares).get("host code", 0.0) / each.time.seconds for each in plan.times if each.time)
    if busy * own < BUSY:
        return ""
    return f"This machine was busy for {percent(busy)} of the time in the program's own code: the intervals are wider."


def _no_times(plan: Plan) -> Iterator[str]:
    """Why Macs have no time; nothing where all have one, and where the verdicts say it."""
    names: dict[str, list[str]] = {}
    for choice in plan.choices:
        if choice.no_time and not (plan.times and choice.own):
            names.setdefault(choice.no_time, []).append(choice.mac.name)
    if plan.times:
        yield from (f"No time is predicted for {listed(macs)}, because {why}." for why, macs in names.items())
    elif names:
        why = "the script made no whole step" if plan.base.work is None else max(names, key=lambda why: len(names[why]))
        yield f"No time is predicted, because {why}."


def _about_own_mac(own: MacTime | None) -> str:
    """What is to be known of one's own Mac where it has no row with a time."""
    if own is None:
        return ""
    name = own.mac.name
    if own.time is None:
        why = own.no_time or "its memory is too small"
        return f"No time is predicted for {name}, because {why}; so nothing is compared with it."
    if not own.verdict.has_room:
        what = "pages" if own.verdict is Verdict.PAGES else "fails"
        return f"On {name} the run {what}: speeds are relative to its step there with enough memory."
    return ""


def _interval(choices: Sequence[MacTime]) -> str:
    """`80 % intervals: 0.51 to 2.03 times the step.`: the widest of the Macs."""
    walked = [choice.time for choice in choices if choice.time is not None]
    low = min((time.low / time.seconds for time in walked), default=1.0)
    high = max((time.high / time.seconds for time in walked), default=1.0)
    return f"80 % intervals of the steps: {low:.2f} to {high:.2f} times the prediction." if walked else ""
