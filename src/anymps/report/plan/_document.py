"""A plan as a document: which Mac, what its memory allows, times, what fills the memory, what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from anymps.report import _text as text
from anymps.report._drawings import memory_drawing
from anymps.report._memory import beyond
from anymps.report.document import (
    Block,
    Change,
    Changes,
    Column,
    Document,
    Drawing,
    Form,
    Items,
    Prose,
    Section,
    State,
    Table,
)
from anymps.report.plan import _batch_words as batch_words
from anymps.report.plan import _choice_words as choice_words
from anymps.report.plan import _fix_words as fix_words
from anymps.report.plan import _words as words
from anymps.report.plan._chart import batch_chart, mac_chart, memory_chart, time_chart
from anymps.report.plan._drawings import batch_drawings, choice_drawing, macs_drawing, times_drawing

if TYPE_CHECKING:
    from anymps.plan import Plan
    from anymps.record import Moment

_STATES: Final[dict[str, State]] = {"fits": "clean", "tight": "warning", "pages": "warning", "fails": "error"}
_PATHS: Final = ("module", "operator", "line")
_ON_MACS: Final = "The working set is what Metal recommends; the peak is that of the heaps"
_LESS: Final = {"80 %": 1, "margin": 1, "operator": 1, "tokens/s": 2}  # columns, the least important first
_PREDICTED: Final = "predicted, with 80 % intervals"


def plan_document(plan: Plan, *, short: bool = False) -> Document:
    """All that a plan says, for all forms that people read; a `short` one is what a person needs to decide."""
    peak = plan.base.story.peak
    assert peak is not None
    script = text.clean(plan.script)
    names = [mac.name for mac in plan.asked]
    return Document(
        title=f"anymps plan: {script}" + (f" on {', '.join(names)}" if names else ""),
        kind="plan",
        made_from="from a script run on shapes",
        eyebrow=(script, *names, f"torch {text.clean(plan.torch)}", "plan"),
        state=_STATES[words.worst(plan)],
        verdict=words.headline(plan),
        messages=words.messages(plan),
        sentences=tuple(filter(None, (words.summary(plan, peak), words.dropped(plan)))),
        figures=tuple(_figures(plan, peak)),
        sections=tuple(_short(plan) if short else _sections(plan, peak)),
        dense=True,
    )


def _figures(plan: Plan, peak: Moment) -> Iterator[tuple[str, str]]:
    figures = (
        ("peak in tensors", text.size(peak.allocated)),
        ("peak of the heaps", text.size(plan.base.story.peak_reserved)),
        ("batch", text.count(plan.base.batch or 0)),
        ("sequence", text.count(plan.base.sequence or 0)),
        ("steps measured", str(plan.base.steps)),
    )
    return (figure for figure in figures if figure[1])


def _short(plan: Plan) -> Iterator[Section]:
    yield _choice(plan)
    if growth := words.growth(plan):
        yield Section("growth", "", (Prose((growth,)),), headed=Form.PAGE)
    yield from _changes(plan)
    for fix in fix_words.fixes(plan):
        if fix.begin:
            told = tuple(filter(None, (fix.text, fix.here)))
            yield Section("first", "", (Prose(told, lead="Change first.", joined=True),), headed=Form.PAGE)
    yield Section("more", "", (Prose((choice_words.more(plan),), look="quiet"),), headed=Form.PAGE)


def _sections(plan: Plan, peak: Moment) -> Iterator[Section]:
    yield _choice(plan)
    yield Section(
        "macs",
        "What the memory allows",
        (
            Drawing("macs_drawing", macs_drawing(plan), lambda width, glyphs: mac_chart(plan, width, glyphs)),
            _table("mac-table", words.mac_rows(plan), _ON_MACS),
        ),
        nav="Macs",
        remark="each bar has its own scale; macOS as in `anymps plan --mac`",
    )
    yield from _times(plan)
    yield from _batches(plan)
    yield _memory(plan, peak)
    yield from _changes(plan)
    yield from _fixes(plan)
    assumptions = words.assumption_rows(plan)
    if assumptions.rows:
        what = "A plan computes no values: numbers are 0, everything is nonzero and unique."
        hanging = f"{what} Memory that depends on such a value is an assumption."
        table = _table("assumption-table", assumptions, "Where values were asked for")
        title = "Values that the script read"
        yield Section("assumptions", title, (Prose((hanging,)), table), nav="Values read")
    yield Section("limits", "Limits of this plan", (Items(words.limits(plan)),), nav="Limits")


def _choice(plan: Plan) -> Section:
    caption = "Whether the run fits as it is written, the largest batch that does, and the predicted time of a step"

    def table(width: int | None = None) -> Table:
        return _table("choice-table", choice_words.choice_rows(plan, width), caption)

    drawing = Drawing("choice_drawing", choice_drawing(plan))
    return Section(
        "choice",
        choice_words.TITLE,
        (drawing, replace(table(), narrow=table)),
        nav="Which Mac",
        remark=choice_words.remark(plan),
        folded=False,
    )


def _times(plan: Plan) -> Iterator[Section]:
    drawing = times_drawing(plan)
    if not plan.times:
        return
    chart = Drawing("times_drawing", drawing, lambda width, glyphs: time_chart(plan, width, glyphs))
    yield Section(
        "times",
        "How long a step takes",
        (*([chart] if drawing else []), _table("time-table", words.time_rows(plan), _capital(_PREDICTED))),
        nav="Times",
        heading=f"A step on {'these Macs' if plan.asked else 'each chip'}",
        remark=_PREDICTED,
    )


def _batches(plan: Plan) -> Iterator[Section]:
    """Batch against samples a second, by Mac."""
    blocks: list[Block] = [Prose((why,))] if (why := batch_words.without_batches(plan)) else []
    drawings = {drawn["name"]: drawn["drawing"] for drawn in batch_drawings(plan)}
    for batches in plan.batches:
        if (name := batches.mac.name) in drawings:
            chart = partial(batch_chart, batches)
            blocks.append(Drawing("times_drawing", drawings[name], chart, title=name))

    def table(width: int | None = None) -> Table:
        return _table("batch-table", batch_words.batch_rows(plan, width), _capital(_PREDICTED))

    if table().rows:
        blocks.append(replace(table(), narrow=table))
    if blocks:
        remark = _PREDICTED if plan.batches else ""
        yield Section("batches", batch_words.TITLE, tuple(blocks), nav="Batch", remark=remark)


def _memory(plan: Plan, peak: Moment) -> Section:
    growth = words.growth(plan)
    modules, lines = words.module_rows(peak), words.line_rows(peak)
    blocks: list[Block] = [Prose((growth,), lead="It grows.")] if growth else []
    blocks.append(
        Drawing(
            "memory_drawing",
            memory_drawing(plan.base.story, first_step=1),
            lambda width, glyphs: memory_chart(plan.base.story, width, glyphs),
        )
    )
    blocks.append(_categories(peak))
    for anchor, rows, title in (
        ("module-table", modules, "Activations kept for the backward at the peak, by module"),
        ("line-table", lines, "Your lines that hold most at the peak"),
    ):
        if rows.rows:
            blocks.append(_table(anchor, rows, title, title=title))
    remark = "in the order of allocations, the highest of each interval"
    return Section("memory", "What fills the memory", tuple(blocks), nav="Memory", remark=remark)


def _categories(peak: Moment) -> Table:
    whole = max(1, peak.allocated)
    held = words.categories(peak)
    rows = [(name, text.size(size), text.percent(size, whole)) for name, size in held]
    shown = words.Rows(("used for", "size", "share"), (1, 2), (*rows, *beyond(peak)))
    bars = tuple(size / whole for _, size in held)
    return replace(_table("category-table", shown, "At the peak, by use", title="At the peak, by use"), bars=bars)


def _changes(plan: Plan) -> Iterator[Section]:
    rows, remark = words.change_rows(plan), "each change alone, measured in the same way"
    if rows.rows:
        table = _table("change-table", rows, _capital(remark))
        yield Section("changes", "What if", (table,), remark=remark, folded=False)


def _fixes(plan: Plan) -> Iterator[Section]:
    found = tuple(
        Change(
            (Prose((fix.text,)), *([Prose((fix.here,), look="quiet")] if fix.here else [])),
            badge="begin here" if fix.begin else "",
        )
        for fix in fix_words.fixes(plan)
    )
    if found:
        title = "What to change first"
        yield Section(
            "fixes", f"{title}, in this order", (Changes(found),), "Change first", title, "in this order", folded=False
        )


def _table(anchor: str, rows: words.Rows, caption: str, title: str = "") -> Table:
    return Table(
        anchor,
        tuple(_column(place, rows) for place in range(len(rows.columns))),
        rows.rows,
        caption=caption,
        title=title,
        rest=rows.rest,
        head=None if 0 in rows.numbers else 0,
    )


def _column(place: int, rows: words.Rows) -> Column:
    name = rows.columns[place]
    less = _LESS.get(name, 0)
    if place in rows.numbers:
        return Column(name, "number", left_out=less)
    if name in _PATHS:
        return Column(name, "path", left_out=less)
    if not name:
        return Column(name, "remark", wraps=True)
    verdicts = name == "verdict" or any(row[place] in _STATES for row in rows.rows)
    return Column(name, "verdict", wraps=True) if verdicts else Column(name)


def _capital(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"
