"""The report of a run as a document: the Mac's step, findings, timeline, step, waits, memory, operators, lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from anymps.findings import Finding, Story
from anymps.record import Meta, OperatorUse
from anymps.report import _text as text
from anymps.report._memory import memory_section
from anymps.report._notes import note, state_of
from anymps.report._predicted import mac_times, predicted_sentence
from anymps.report._step import is_idle, step_section, total
from anymps.report._timeline import time_section, timeline_section
from anymps.report._words import (
    cost,
    environment,
    limits,
    needless_waits,
    not_modelled,
    seen_in,
    verdict,
)
from anymps.report.document import (
    WORDS,
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Form,
    Items,
    Measured,
    Note,
    Prose,
    Section,
    Table,
)
from anymps.report.run._lines import gpu_section, lines_section
from anymps.report.run._waits import waits_section

# A page has an end: what lies beyond is summed up, and whole in the JSON report.
_MOST_FINDINGS: Final = 200
_MOST_OPERATORS: Final = 300
_BRIEF: Final = (
    Column("where", "path"),
    Column("rule"),
    Column("finding", wraps=True),
    Column("cost a step", "number", left_out=1),
)
_MORE: Final = "-v shows each finding's line, fix and reason, this machine's own times, the Mac and the versions."


def run_document(
    story: Story,
    findings: Sequence[Finding],
    *,
    forms: Form = Form.TERMINAL,
    brief: bool = False,
) -> Document:
    """All that a report says of a run; what none of `forms` shows is not made.

    A `brief` one has a line for each finding, and leaves out this machine's own times and the environment.
    """
    run, judged, timed = story.run, story.judge(findings), story.timed
    notes = [
        note(f"finding-{number}", one, run.directory, cost=cost(one, timed), seen_in=seen_in(one, story.processes))
        for number, one in enumerate(findings, 1)
    ]
    first, *others = verdict(story, findings)
    return Document(
        title=_title(run),
        kind="report",
        made_from="from a recording",
        eyebrow=tuple(_eyebrow(run)),
        state=state_of(findings, judged),
        verdict=first,
        sentences=tuple(filter(None, (*others, "" if judged.stops else predicted_sentence(story)))),
        figures=tuple(_figures(story, findings)) if Form.PAGE in forms else (),
        sections=tuple(_brief(story, findings, notes)) if brief else tuple(_sections(story, findings, notes, forms)),
    )


def _sections(story: Story, findings: Sequence[Finding], notes: Sequence[Note], forms: Form) -> Iterator[Section]:
    page = Form.PAGE in forms
    timed = page and not story.judge(findings).stops
    if timed:
        yield from time_section(story)
    if notes:
        yield _findings(notes)
    if timed:
        yield from timeline_section(story)
    yield from step_section(story)
    yield from waits_section(story, findings)
    yield from gpu_section(story)
    yield from memory_section(story, page=page)
    if page:
        yield from _operators(story.operators)
    yield lines_section(story)
    facts = Facts(tuple(environment(story)))
    yield Section("environment", "The Mac and the versions in force", (facts,), "Environment", "Environment")
    told = tuple(limits(story))
    yield Section(
        "limits",
        "Limits of this report",
        (
            Items((*told, *not_modelled(story.run)), Form.PAGE),
            Items(told or ("None that this report knows of.",), Form.TEXT),
        ),
        "Limits",
        "Limits",
    )


def _brief(story: Story, findings: Sequence[Finding], notes: Sequence[Note]) -> Iterator[Section]:
    if notes:
        rows = tuple(
            (it.spot.where, f"{it.id} {WORDS[it.severity]}", it.title, text.duration_range(*finding.cost_per_step_ns))
            for it, finding in zip(notes, findings, strict=True)
        )
        table = Table("findings-table", _BRIEF, rows)
        costs = any(row[-1] for row in rows)
        yield Section("findings", "What to change", (table if costs else table.of_columns((0, 1, 2)),))
    yield from step_section(story, brief=True)
    yield from waits_section(story, findings, brief=True)
    yield from gpu_section(story)
    yield from memory_section(story, brief=True)
    yield lines_section(story)
    if told := tuple(limits(story, brief=True)):
        yield Section("limits", "Limits", (Items(told),))
    yield Section("more", "", (Prose((_MORE,), look="quiet"),), headed=Form.PAGE)


def _title(run: Meta) -> str:
    script = text.path(run.script, run.directory)
    mac = text.clean(run.mac)
    return "anymps report" + (f": {script}" if script else "") + (f" on {mac}" if mac else "")


def _eyebrow(run: Meta) -> list[str]:
    torch_version = text.clean(run.torch_version)
    words = [
        text.path(run.script, run.directory),
        text.clean(run.mac),
        f"torch {torch_version}" if torch_version else "",
        {None: "", False: "real device", True: "virtual device"}[run.virtual],
    ]
    return [word for word in words if word] or ["anymps"]


def _figures(story: Story, findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    table = story.step_table
    if not table.first or is_idle(table):
        return
    share = total(table.typical)
    of_these = f" ({text.count(needless)} needless)" if (needless := needless_waits(story, findings)[0]) else ""
    on_mac = mac_times(story.timed)(None) or (text.duration(share.time_ns) if story.run.on_mac else "")
    if on_mac and not story.judge(findings).stops:
        yield "a step on the Mac", on_mac
    yield "its operators on mps", text.count(share.on_mps) or "0"
    yield "its operators on CPU", text.count(share.on_cpu) or "0"
    yield f"its waits{of_these}", text.count(share.waits) or "0"


def _findings(notes: Sequence[Note]) -> Section:
    """All findings, as far as a page goes."""
    blocks: list[Block] = [*notes[:_MOST_FINDINGS]]
    if left := notes[_MOST_FINDINGS:]:
        blocks += [replace(further, forms=Form.TEXT) for further in left]
        blocks.append(Prose((f"{len(left)} more findings are in the JSON report.",), look="quiet", forms=Form.PAGE))
    return Section("findings", "What to change", tuple(blocks), folded=False, headed=Form.TERMINAL | Form.PAGE)


def _operators(uses: Sequence[OperatorUse]) -> Iterator[Section]:
    if not uses:
        return
    numbers = (Column("calls", "number"), Column("time here", "number"))
    less = (Column("per call", "number", left_out=1), Column("moved", "number", left_out=2))
    left = uses[_MOST_OPERATORS:]
    table = Table(
        "operator-table",
        (Column("operator", "path"), Column("runs as"), *numbers, *less),
        tuple(_operator(use) for use in uses[:_MOST_OPERATORS]),
        caption="All calls of the run, by operator",
        rest=f"{text.plural(len(left), 'more operator')} with {sum(use.count for use in left):,} calls."
        if left
        else "",
        sorted_by="calls",
    )
    yield Section("operators", "Operators", (table,), forms=Form.PAGE)


def _operator(use: OperatorUse) -> tuple[Cell, ...]:
    mean = use.duration_ns / max(use.count, 1)
    return (
        text.clean(use.name),
        use.fate.label,
        Measured(f"{use.count:,}", use.count),
        Measured(text.duration(use.duration_ns), use.duration_ns),
        Measured(text.duration(mean), mean),
        Measured(text.size(use.moved_bytes), use.moved_bytes),
    )
