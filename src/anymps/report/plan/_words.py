"""What a plan says, in words and rows: the same in the terminal, on the page and, as far as it has words, in JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Final

from anymps._text import step_name
from anymps.findings import kept_graphs
from anymps.plan import (
    LARGEST_BATCH,
    Assumption,
    Dropped,
    Fix,
    Kind,
    MacOutcome,
    NoLarger,
    OtherAllocations,
    Plan,
    Row,
    Verdict,
)
from anymps.record import Holding, Moment, Phase
from anymps.report import _text as text
from anymps.report._predicted import phase_words
from anymps.report.document import Column, Table

MOST: Final = 6
"""Rows of a list that may be long."""

_NAMED: Final = 3
"""Files named in a sentence."""

_LIMIT: Final = (
    "Other memory of the host (data sets, the Python process) is not counted, but a Mac has one memory for both."
)

_MEANING: Final = {
    Verdict.FITS: "fits",
    Verdict.TIGHT: "fits only without other allocations",
    Verdict.PAGES: "runs, but above the working set: macOS pages, steps take ten to twenty times as long",
    Verdict.FAILS: "fails",
}

INTERVAL: Final = Column("80 %", "number", left_out=1)

FEWEST: Final = "Each chip with its fewest GPU cores, and the least memory that holds the run."

_UNKNOWN: Final = {
    NoLarger.NO_BATCH: "The largest batch is unknown, because no data loader gives batches. If the script has an "
    "option for the batch size, write {batch} as its value and pass --batch.",
    NoLarger.OTHER_COURSE: "The largest batch is unknown: with twice the batch the script runs differently, for "
    "example because an epoch ends sooner.",
    NoLarger.STOPPED: "The largest batch is unknown, because with twice the batch the script stops: %s. Its batch may "
    "be fixed elsewhere.",
    NoLarger.LATE: "The largest batch is unknown, because the measurement with twice the batch took longer than "
    "--seconds.",
    NoLarger.NOT_MEASURED: "The largest batch was not measured (--no-larger).",
}


def headline(plan: Plan) -> str:
    """The verdict in one sentence."""
    if plan.asked:
        return " ".join(f"On {row.outcome.mac.name}: {_meaning(row)}." for row in plan.rows)
    good = [row.outcome.mac for row in plan.rows if row.outcome.verdict.has_room]
    return f"Fits on Macs with {min(mac.ram_gib for mac in good)} GB or more." if good else "Does not fit on any Mac."


def _meaning(row: Row) -> str:
    if row.recovery is not None:
        return f"memory runs out, and the script {_after_failure(row)}"
    if row.outcome.verdict is Verdict.PAGES and row.outcome.hangs_on_others:
        return f"{_MEANING[Verdict.PAGES]}; it fails if other allocations take {text.size(row.outcome.others)}"
    return _MEANING[row.outcome.verdict]


def _after_failure(row: Row) -> str:
    """What the script does after memory ran out."""
    batch = row.recovery.last_batch if row.recovery is not None else None
    return f"continues with batch {batch}" if batch is not None else "continues"


def worst(plan: Plan) -> Verdict:
    """The verdict that the headline tells: the worst of the Macs asked about, or that of the best of all."""
    found = sorted((row.outcome.verdict for row in plan.rows), key=list(Verdict).index)
    return found[-1] if plan.asked else found[0]


def messages(plan: Plan) -> tuple[str, ...]:
    """Torch's own errors on the Macs that were asked about."""
    failed = [row.outcome for row in plan.rows if row.outcome.message] if plan.asked else []
    several = len(plan.asked) > 1
    return tuple(f"{one.mac.name + ': ' if several else ''}{text.clean(one.message)}" for one in failed)


def summary(plan: Plan) -> str:
    """The peak in one sentence."""
    peak = plan.base.peak
    batch = f", batch {plan.base.batch}" if plan.base.batch else ""
    at = f", at {text.place(peak.site, os.getcwd())}" if peak.site.known else ""
    taken = max(row.outcome.mac.other_memory for row in plan.rows)
    return (
        f"{text.clean(plan.script)}{batch}: at its peak {text.size(peak.allocated)} in tensors and "
        f"{text.size(plan.base.story.peak_reserved)} of the allocator's heaps, in {moment(peak.step, peak.phase)}{at} "
        f"(torch {text.clean(plan.torch)}, {text.plural(plan.base.steps, 'step')} measured on shapes)."
        + (f" The {plan.base.limit:g} s of --seconds ran out: later steps may need more." if plan.base.limit else "")
        + (f" Other programs take {text.size(taken)} of the memory: the run has what they leave." if taken else "")
    )


def ended(plan: Plan) -> str:
    """That rounds of a loop ended the measurement, and what it leaves out; nothing where none did."""
    base = plan.base
    if base.loop is None:
        return ""
    rounds = f"{text.plural(base.steps, 'round')} of the loop at {text.place(base.loop, os.getcwd())}"
    differ = " Their tensors change size, so later rounds may need more memory and time." if base.rounds_differ else ""
    if graphs := max((one.time.graphs for one in plan.times if one.time), default=0) if base.rounds_differ else 0:
        differ += f" For each size, MPSGraph may keep {kept_graphs(graphs)} that no counter of torch shows."
    return f"The measurement stopped after {rounds}.{differ} A larger --steps measures more of the script."


def dropped(found: Dropped) -> str:
    """What the script wrote and the plan dropped, or nothing."""
    done = [
        f"{verb} {text.plural(len(files), 'file')} ({_files(files)})"
        for verb, files in (("wrote", found.written), ("removed", found.removed))
        if files
    ]
    if not done:
        return ""
    return (
        f"The script {' and '.join(done)}. The plan discarded that: nothing on disk has changed "
        "(--allow-writes lets the script write)."
    )


def _files(files: Sequence[str]) -> str:
    """The first names, those below the current folder before others."""
    near = sorted(files, key=lambda file: not file.startswith(os.getcwd()))
    names = ", ".join(text.path(file, os.getcwd()) for file in near[:_NAMED])
    return names if len(files) <= _NAMED else f"{names} and {len(files) - _NAMED} more"


def moment(step: int, phase: Phase) -> str:
    """`step 2, backward`."""
    return f"{step_name(step)}, {phase_words()[phase]}"


def module_table(peak: Moment) -> Table:
    """Which modules' activations are kept for the backward at the peak."""
    held = [one for one in peak.by_module() if one.bytes]
    rows = tuple(
        (text.size(one.bytes), text.count(one.count), text.clean(one.module) or "outside any module")
        for one in held[:MOST]
    )
    title = "Activations kept for the backward at the peak, by module"
    columns = (Column("size", "number"), Column("tensors", "number"), Column("module", "path"))
    return Table("module-table", columns, rows, caption=title, title=title, rest=_more(held), head=None)


def line_table(peak: Moment) -> Table:
    """Which lines of the script hold most at the peak."""
    held = [one for one in peak.by_site() if one.site.known]
    rows = tuple(
        (
            text.size(one.bytes),
            one.category.value,
            text.clean(one.operator.removeprefix("aten::")),
            text.place(one.site, os.getcwd()),
        )
        for one in held[:MOST]
    )
    title = "Your lines that hold most at the peak"
    columns = (
        Column("size", "number"),
        Column("what"),
        Column("operator", "path", left_out=1),
        Column("line", "path"),
    )
    return Table("line-table", columns, rows, caption=title, title=title, rest=_more(held), head=None)


def _more(held: Sequence[Holding]) -> str:
    rest = held[MOST:]
    return f"and {len(rest)} more with {text.size(sum(one.bytes for one in rest))}" if rest else ""


def growth(fixes: Sequence[Fix]) -> str:
    """What each step leaves behind, or nothing."""
    more = next((fix.growth for fix in fixes if fix.growth), 0)
    return f"Each step leaves {text.size(more)} more behind than the one before: something is kept." if more else ""


def mac_table(plan: Plan) -> Table:
    """What every Mac makes of the run."""
    batches = any(row.largest_batch is not None for row in plan.rows)
    columns = (
        Column("Mac"),
        Column("working set", "number"),
        Column("peak", "number"),
        Column("margin", "number", left_out=1),
        Column("verdict", "verdict", wraps=True),
        *((Column("largest batch", "number"),) if batches else ()),
    )
    rows = []
    for row in plan.rows:
        outcome = row.outcome
        fails = outcome.verdict is Verdict.FAILS
        cells = [
            outcome.mac.name,
            text.size(outcome.mac.room) or "0",
            "" if fails else text.size(outcome.peak_reserved),
            "" if fails else _signed(outcome.margin),
            verdict(outcome) + (f", then {_after_failure(row)}" if row.recovery is not None else ""),
        ]
        if batches:
            cells.append(largest_batch(row.largest_batch) or "?")
        rows.append(tuple(cells))
    caption = "The working set is what Metal recommends; the peak is that of the heaps"
    return Table("mac-table", columns, tuple(rows), caption=caption, rest=" ".join(_on_macs(plan)))


def largest_batch(number: int | None) -> str:
    """`8`, `65,536+` where larger ones were not looked at, `none`, and nothing where it is not known."""
    if number is None:
        return ""
    return f"{number:,}{'+' if number == LARGEST_BATCH else ''}" if number else "none"


def about_times(plan: Plan) -> tuple[str, ...]:
    """Of which release of torch the times are, where it is another one, and whether values decide how much is done."""
    told = tuple(filter(None, [_closures(*plan.base.closures)] if plan.times else []))
    if not plan.times_of:
        return told
    of, made_by = (text.clean(version).partition("+")[0] for version in (plan.times_of, plan.torch))
    return f"These are the times of torch {of}, for the calls that torch {made_by} makes here.", *told


def _closures(fewest: int, most: int) -> str:
    """That an optimizer decides how much a step does; the empty text where none does."""
    if most < 2:
        return ""
    many = f"{fewest:,} to {most:,}" if fewest < most else f"{most:,}"
    return (
        f"The optimizer called its closure {many} times in a measured step. If values decide how often, as with LBFGS, "
        "later steps take less time or more."
    )


def rate(number: float | None) -> str:
    """Two digits: `28`, `1,300`, `0.31`."""
    if not number:
        return ""
    digits = 1 - math.floor(math.log10(number))
    return f"{round(number, digits):,.{max(0, digits)}f}"


def _on_macs(plan: Plan) -> Iterator[str]:
    """What the table of the Macs leaves open."""
    if any(row.outcome.hangs_on_others for row in plan.rows):
        much = text.size(max(row.outcome.others for row in plan.rows))
        yield f"Others: memory that MPSGraph and Metal take besides the heaps, up to {much} here, as in public logs."
    if plan.no_larger is not None:
        yield larger_unknown(plan.no_larger, plan.problem)
    if plan.base.retries and not plan.asked and any(row.outcome.verdict is Verdict.FAILS for row in plan.rows):
        yield "The script's code handles running out of memory: --mac shows what it does then."


def larger_unknown(why: NoLarger | None, problem: str) -> str:
    """Why the largest batch is not known; nothing where it is."""
    if why is None:
        return ""
    unknown = _UNKNOWN[why]
    return unknown % text.clean(problem).rstrip(".") if "%s" in unknown else unknown


def verdict(outcome: MacOutcome) -> str:
    """`fits`, `fits only without others`, or `fails in step 1, forward`."""
    if outcome.verdict is Verdict.TIGHT:
        return "fits only without others"
    if outcome.verdict is Verdict.PAGES and outcome.hangs_on_others:
        return "pages, fails with others"
    at = f" in {moment(outcome.failing.step, outcome.failing.phase)}" if outcome.failing is not None else ""
    return f"{outcome.verdict.value}{at}"


def limits(known: OtherAllocations) -> tuple[str, ...]:
    """What the numbers leave out, and what stands for it."""
    models = "that read tokens" if known.kind is Kind.TOKENS else "that read no tokens"
    much = f"{text.percent(known.share, 1)} of all memory in use" if known.share else text.size(known.least)
    return (
        "A plan cannot measure the memory that MPSGraph and Metal take besides PyTorch's heaps (others): in "
        f"{known.below} of {known.logs} public logs of models {models} it was {much} or less.",
        _LIMIT,
    )


def _signed(number: int) -> str:
    return f"-{text.size(-number)}" if number < 0 else text.size(number) or "0"


def assumption_table(found: Sequence[Assumption]) -> Table:
    """Where the script read values that a plan does not have."""
    rows = tuple(
        (
            text.count(one.count),
            text.clean(one.what.removeprefix("aten::")),
            f"{text.path(one.file, os.getcwd())}:{one.line}" if one.file else "",
        )
        for one in found[:MOST]
    )
    rest = f"and {len(found) - MOST} more" if len(found) > MOST else ""
    columns = (Column("times", "number"), Column("what"), Column("line", "path"))
    return Table("assumption-table", columns, rows, caption="Where values were asked for", rest=rest, head=None)
