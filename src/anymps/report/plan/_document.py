"""A plan as a document: which Mac, what its memory allows, times, what fills the memory, what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from anymps.plan import Measured, Plan, Verdict
from anymps.record import Moment
from anymps.report import _text as text
from anymps.report._memory import beyond, categories, memory_drawing
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
from anymps.report.plan import _choice_words as choice_words
from anymps.report.plan import _fix_words as fix_words
from anymps.report.plan import _words as words
from anymps.report.plan._drawings import choice_drawing

_STATES: Final[dict[Verdict, State]] = {
    Verdict.FITS: "clean",
    Verdict.TIGHT: "warning",
    Verdict.PAGES: "warning",
    Verdict.FAILS: "error",
}


def plan_document(plan: Plan, *, short: bool = False) -> Document:
    """All that a plan says, for all forms that people read; a `short` one is what a person needs to decide."""
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
        sentences=tuple(filter(None, (words.summary(plan), words.ended(plan), words.dropped(plan.base.dropped)))),
        figures=tuple(_figures(plan.base)),
        sections=tuple(_short(plan) if short else _sections(plan)),
        dense=True,
    )


def _figures(base: Measured) -> Iterator[tuple[str, str]]:
    figures = (
        ("peak in tensors", text.size(base.peak.allocated)),
        ("peak of the heaps", text.size(base.story.peak_reserved)),
        ("batch", text.count(base.batch or 0)),
        ("sequence", text.count(base.sequence or 0)),
        ("steps measured", str(base.steps)),
    )
    return (figure for figure in figures if figure[1])


def _short(plan: Plan) -> Iterator[Section]:
    yield _choice(plan)
    if growth := words.growth(plan.fixes):
        yield Section("growth", "", (Prose((growth,)),), headed=Form.PAGE)
    yield from _changes(plan)
    for fix in fix_words.fixes(plan):
        if fix.begin:
            told = tuple(filter(None, (fix.text, fix.here)))
            yield Section("first", "", (Prose(told, lead="Change first.", joined=True),), headed=Form.PAGE)
    yield Section("more", "", (Prose((choice_words.more(plan),), look="quiet"),), headed=Form.PAGE)


def _sections(plan: Plan) -> Iterator[Section]:
    yield _choice(plan)
    yield Section(
        "macs",
        "What the memory allows",
        (words.mac_table(plan),),
        nav="Macs",
        remark="macOS as in `anymps plan --mac`",
    )
    yield _memory(plan)
    yield from _changes(plan)
    yield from _fixes(plan)
    assumptions = words.assumption_table(plan.base.assumptions)
    if assumptions.rows:
        what = "A plan computes no values: numbers are 0, everything is nonzero and unique."
        hanging = f"{what} Memory that depends on such a value is an assumption."
        title = "Values that the script read"
        yield Section("assumptions", title, (Prose((hanging,)), assumptions), nav="Values read")
    yield Section("limits", "Limits of this plan", (Items(words.limits(plan.others)),), nav="Limits")


def _choice(plan: Plan) -> Section:
    return Section(
        "choice",
        choice_words.TITLE,
        (*_drawn("choice_drawing", choice_drawing(plan.choices, plan.own)), choice_words.choice_table(plan)),
        nav="Which Mac",
        remark=choice_words.remark(plan),
        folded=False,
    )


def _memory(plan: Plan) -> Section:
    growth, peak = words.growth(plan.fixes), plan.base.peak
    blocks: list[Block] = [Prose((growth,), lead="It grows.")] if growth else []
    blocks += [*_drawn("memory_drawing", memory_drawing(plan.base.story)), _categories(peak)]
    blocks += [table for table in (words.module_table(peak), words.line_table(peak)) if table.rows]
    return Section("memory", "What fills the memory", tuple(blocks), nav="Memory")


def _drawn(kind: str, numbers: Mapping[str, Any] | None) -> tuple[Drawing, ...]:
    """The drawing, where there is anything to draw."""
    return (Drawing(kind, numbers),) if numbers is not None else ()


def _categories(peak: Moment) -> Table:
    title = "At the peak, by use"
    columns = (Column("used for"), Column("size", "number"), Column("share", "number"))
    return Table("category-table", columns, (*categories(peak), *beyond(peak)), caption=title, title=title)


def _changes(plan: Plan) -> Iterator[Section]:
    table = fix_words.change_table(plan)
    if table.rows:
        yield Section("changes", "What if", (table,), remark=fix_words.EACH_ALONE, folded=False)


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
