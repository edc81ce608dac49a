"""A comparison as a document: the two recordings, findings, the step side by side, operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.report import _text as text
from anymps.report._notes import STATES, brief_note
from anymps.report._predicted import phase_words
from anymps.report._words import times
from anymps.report.diff import _words as words
from anymps.report.diff._compare import Diff, script_of
from anymps.report.document import Block, Column, Document, Facts, Form, Prose, Section, Table

_MOST_FINDINGS: Final = 200  # of one kind; the JSON form has all


def diff_document(diff: Diff) -> Document:
    """Everything that a comparison says, for all forms that people read."""
    scripts = [script_of(story) for story in (diff.before, diff.after)]
    return Document(
        title="anymps diff" + (f": {scripts[1]}" if scripts[1] else ""),
        kind="comparison",
        made_from="from two recordings",
        eyebrow=("anymps diff", *dict.fromkeys(script for script in scripts if script)),
        state=STATES[min((finding.severity for finding in diff.new), default=None)],
        verdict=words.verdict(diff),
        sections=(_sides(diff), *_findings(diff), _step(diff), *_operators(diff)),
        figures=tuple(_figures(diff)),
    )


def _sides(diff: Diff) -> Section:
    memory = words.memory(diff)
    rows = [("before", words.side(diff.before)), ("after", words.side(diff.after))]
    rows += [("memory at its peak", memory)] if memory else []
    rows += [("scripts", words.OTHER_SCRIPT)] if diff.other_script else []
    return Section(
        "sides", "The two recordings", (Facts(tuple(rows)),), nav="Recordings", folded=False, headed=Form.PAGE
    )


def _findings(diff: Diff) -> Iterator[Section]:
    """What is new, then what has other numbers, then what is gone."""
    before, after = diff.before.run.directory, diff.after.run.directory
    new = [(finding, times(finding), text.clean(finding.what)) for finding in diff.new]
    changed = [(change.after, words.numbers(change), words.numbers(change)) for change in diff.changed]
    gone = [(finding, times(finding), text.clean(finding.what)) for finding in diff.gone]
    for anchor, title, rows, directory in (
        ("new", "New findings", new, after),
        ("changed", "Findings with other counts", changed, after),
        ("gone", "Findings that are gone", gone, before),
    ):
        blocks: list[Block] = [
            brief_note(f"{anchor}-{number}", finding, often, directory, brief=brief, fix=anchor != "gone")
            for number, (finding, often, brief) in enumerate(rows[:_MOST_FINDINGS], 1)
        ]
        left = len(rows) - _MOST_FINDINGS
        if left > 0:
            blocks.append(Prose((f"{text.plural(left, 'more finding')} in the JSON form.",), look="quiet"))
        if blocks:
            yield Section(anchor, title, tuple(blocks), folded=False)


def _step(diff: Diff) -> Section:
    if not diff.phases:
        none = Prose(("Not compared: that needs a complete step in both recordings.",))
        return Section("step", diff.step_title, (none,), nav="Step", folded=False)
    remark = "before, after, and the ratio of the times"
    columns = (
        Column("phase"),
        *(Column(name, "number", left_out=int(name == "on mps")) for name in words.step_columns(diff)),
    )
    names = phase_words(diff.before, diff.after)
    rows = tuple((names[row.phase], *words.step_cells(row)) for row in diff.phases if row.phase is not None)
    whole = ("whole step", *words.step_cells(diff.phases[-1]))
    table = Table("step-table", columns, rows, sums=(whole,), caption=f"{remark.capitalize()}, by phase")
    return Section("step", diff.step_title, (table,), nav="Step", remark=remark, folded=False)


def _operators(diff: Diff) -> Iterator[Section]:
    rows = tuple((name, tuple(names)) for name, names in words.operator_rows(diff))
    if rows:
        title = "Operators without an MPS kernel"
        yield Section("operators", title, (Facts(rows),), nav="Operators", folded=False)


def _figures(diff: Diff) -> Iterator[tuple[str, str]]:
    yield "findings new", f"{len(diff.new):,}"
    yield "findings gone", f"{len(diff.gone):,}"
    if diff.phases:
        columns = dict(zip(words.step_columns(diff), words.step_cells(diff.phases[-1]), strict=True))
        yield "operators on CPU, a step", columns["on CPU"] or "0"
        yield "waits, a step", columns["waits"] or "0"
