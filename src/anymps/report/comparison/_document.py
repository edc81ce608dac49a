"""A comparison of two runs as a document: where and why they diverge, what else differs, the losses, the coverage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps._text import step_name
from anymps.compare import Comparison, Divergence
from anymps.report import _text as text
from anymps.report.comparison import _words as words
from anymps.report.document import (
    Block,
    Column,
    Document,
    Facts,
    Form,
    Items,
    Prose,
    Section,
    State,
    Table,
)

_MOST_DIVERGENCES: Final = 30
_MOST_LOSSES: Final = 24


def comparison_document(found: Comparison, *, short: bool = False) -> Document:
    """All that a comparison says, in the formats that people read; a `short` one of runs that agree is a line."""
    first, second = (side.name for side in found.sides)
    script = text.path(found.script)
    return Document(
        title=f"anymps compare: {script}",
        kind="comparison",
        made_from=f"from a run on {first} and one on {second}",
        eyebrow=("anymps compare", script, f"{first} and {second}"),
        state=_state(found),
        verdict=words.verdict(found),
        sections=()
        if short and found.agrees
        else (
            *_first_divergence(found),
            *_stops(found),
            *_later_divergences(found),
            *_losses(found),
            _compared(found),
        ),
        figures=tuple(_figures(found)),
    )


def _state(found: Comparison) -> State:
    if found.agrees:
        return "clean" if found.is_used else "warning"
    return "error" if any(side.ending.error for side in found.sides) else "warning"


def _first_divergence(found: Comparison) -> Iterator[Section]:
    if found.first is not None:
        blocks: list[Block] = [Facts(tuple(_rows(found, found.first))), Prose((words.why(found, found.first),), "Why:")]
        advice = words.advice(found, found.first)
        if advice:
            blocks.append(Prose((advice,), "Do:", look="fix"))
        yield Section("first", "Where they first diverge", tuple(blocks), nav="First", folded=False)


def _rows(found: Comparison, divergence: Divergence) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    call = divergence.call
    if call.site.line:
        line = f"{words.place(call.site)}  {call.site.source}".rstrip()
        yield "line", f"{line}{' (backward)' if call.in_backward else ''}"
    yield "operator", words.operators(divergence.right or divergence.left).replace("`", "")
    yield "when", ", ".join(filter(None, [words.step(found, call), f"call {call.number + 1:,}"]))
    for side, sketch in zip(found.sides, (divergence.one, divergence.other), strict=True):
        if sketch is not None:
            yield side.name, words.numbers(sketch)
    if difference := words.difference(divergence):
        yield "difference", difference


def _stops(found: Comparison) -> Iterator[Section]:
    rows = []
    for side in found.sides:
        if side.ending.error:
            site = side.ending.site
            where = f" at {words.place(site)}  {site.source}" if site.line else ""
            when = f", in {step_name(side.ending.steps)}" if any(one.ending.steps for one in found.sides) else ""
            rows.append(f"On {words.name_of(side)}{when}{where}: {side.ending.error}")
    if rows:
        more = Prose(("All calls that both runs made before the failure were compared.",), look="quiet")
        yield Section("stops", "Where the script fails", (Items(tuple(rows)), more), nav="Failure", folded=False)


def _later_divergences(found: Comparison) -> Iterator[Section]:
    rest = found.divergences[1:]
    if not rest:
        return
    columns = (
        Column("line", "path"),
        Column("operator", wraps=True),
        Column("why", wraps=True),
        Column("step", "number", left_out=2),
        Column("times", "number", left_out=1),
        Column("difference", "number"),
    )
    rows = tuple(
        (
            words.place(divergence.call.site) + (" backward" if divergence.call.in_backward else ""),
            words.short(divergence.call),
            words.reason(divergence),
            f"{divergence.call.step + 1:,}",
            f"{divergence.times:,}",
            words.percent(divergence.relative) if divergence.one is not None else "",
        )
        for divergence in rest[:_MOST_DIVERGENCES]
    )
    more = len(rest) - len(rows)
    table = Table(
        "others-table",
        columns,
        rows,
        caption="Calls that diverge for a reason of their own, in program order",
        intro="Consequences of an earlier divergence are not listed.",
        rest=f"{more:,} more in the JSON report." if more > 0 else "",
    )
    yield Section("others", "What else differs", (table,), nav="Others", folded=False)


def _losses(found: Comparison) -> Iterator[Section]:
    if not found.losses:
        return
    first, second = (side.name for side in found.sides)
    columns = (
        Column("step", "number"),
        Column(first, "number"),
        Column(second, "number"),
        Column("difference", "number"),
    )
    shown = _spread(len(found.losses))
    rows = tuple(
        (
            f"{pair.step + 1:,}",
            f"{pair.left:.7g}",
            f"{pair.right:.7g}",
            words.percent(pair.difference) if pair.difference else "0",
        )
        for pair in (found.losses[place] for place in shown)
    )
    left = len(found.losses) - len(rows)
    where = words.place(found.loss_site)
    table = Table(
        "losses-table",
        columns,
        rows,
        caption=f"The values {f'at {where}' if where else 'of each step'}; differences are relative to the larger one",
        rest=f"{left:,} more in the JSON report." if left else "",
    )
    yield Section("losses", "Losses", (table,), remark=where, folded=False)


def _spread(count: int) -> list[int]:
    """The first ones, then ones spread evenly to the last."""
    if count <= _MOST_LOSSES:
        return list(range(count))
    head = _MOST_LOSSES // 2
    tail = _MOST_LOSSES - head
    return [*range(head), *(head + (place + 1) * (count - 1 - head) // tail for place in range(tail))]


def _compared(found: Comparison) -> Section:
    rounding = found.rounding
    rows: list[tuple[str, str | tuple[str, ...]]] = [(side.name, words.facts(side)) for side in found.sides]
    steps = found.sides[0].traced_steps
    if found.sides[0].ending.steps > len(steps):
        later = ", ".join(f"{step + 1:,}" for step in steps if step and step - 1 not in steps)
        and_later = f", and of {'steps' if ',' in later else 'step'} {later}" if later else ""
        rows.append(("steps", f"every call of the {_run_of(steps)}{and_later}; the losses of all steps"))
    shared = found.by_kernels
    on_kernels = f"; {shared.both:,} by the kernels of both releases, {shared.one:,} by those of only one"
    rows.append(("calls", f"{found.compared:,} matched and compared{on_kernels if found.has_releases else ''}"))
    results = text.plural(rounding.compared, "result") if rounding.compared else "no results"
    rows.append(("same inputs", f"{results}, {rounding.same:,} bit-identical" if rounding.compared else results))
    if rounding.first is not None:
        rows.append(("first rounding", words.first_rounding(found, rounding)))
    left_out = max(side.ending.left_out for side in found.sides)
    if left_out:
        rows.append(("left out", f"{text.plural(left_out, 'call')} over the limit of one trace"))
    note = (
        "A difference is treated as rounding within 2× the error bound of the operator, its dtype and the length of "
        "its sums, capped at 2× PyTorch's tolerance in its tests of mps. Tensors are compared by their counts "
        "of NaN and infinity, smallest and largest values, mean, and 16 elements."
    )
    blocks = (Facts(tuple(rows)), Prose((note,), look="quiet"))
    return Section("compared", "What was compared", blocks, nav="Compared", headed=Form.ALL)


def _run_of(steps: tuple[int, ...]) -> str:
    length = next((place for place, step in enumerate(steps) if place != step), len(steps))
    return "first step" if length == 1 else f"first {length:,} steps"


def _figures(found: Comparison) -> Iterator[tuple[str, str]]:
    yield "calls compared", f"{found.compared:,}"
    yield "divergences", f"{len(found.divergences):,}"
    if found.losses:
        yield "largest loss difference", words.percent(found.largest_difference) if found.largest_difference else "0"
