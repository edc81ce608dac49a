"""A comparison as a document: the two recordings, findings, the step side by side, operators; and their words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings import Story
from anymps.report import _text as text
from anymps.report._notes import STATES, brief_note
from anymps.report._predicted import ON_MAC, phase_words
from anymps.report._words import times
from anymps.report.diff._compare import Diff, FindingPair, PhaseChange, script_of
from anymps.report.document import Block, Column, Document, Facts, Form, Prose, Section, Table

_MOST_FINDINGS: Final = 200  # of one kind; the JSON form has all
_STEP_COLUMNS: Final = ("on mps", "on CPU", "waits", "time", "ratio")
_MAC_COLUMNS: Final = (ON_MAC, "its ratio")
"""Those of the predicted time, where both recordings have one."""
_OTHER_SCRIPT: Final = (
    "named differently: findings were matched by rule, function, line of code and operator, not by file"
)


def diff_document(diff: Diff) -> Document:
    """Everything that a comparison says, for all forms that people read."""
    scripts = [script_of(story) for story in (diff.before, diff.after)]
    return Document(
        title="anymps diff" + (f": {scripts[1]}" if scripts[1] else ""),
        kind="comparison",
        made_from="from two recordings",
        eyebrow=("anymps diff", *dict.fromkeys(script for script in scripts if script)),
        state=STATES[min((finding.severity for finding in diff.new), default=None)],
        verdict=_verdict(diff),
        sections=(_sides(diff), *_findings(diff), _step(diff), *_operators(diff)),
        figures=tuple(_figures(diff)),
    )


def _sides(diff: Diff) -> Section:
    memory = _memory(diff)
    rows = [("before", _side(diff.before)), ("after", _side(diff.after))]
    rows += [("memory at its peak", memory)] if memory else []
    rows += [("scripts", _OTHER_SCRIPT)] if diff.other_script else []
    return Section(
        "sides", "The two recordings", (Facts(tuple(rows)),), nav="Recordings", folded=False, headed=Form.PAGE
    )


def _findings(diff: Diff) -> Iterator[Section]:
    """What is new, then what has other numbers, then what is gone."""
    before, after = diff.before.run.directory, diff.after.run.directory
    new = [(finding, times(finding), text.clean(finding.what)) for finding in diff.new]
    changed = [(change[1], numbers(change), numbers(change)) for change in diff.changed]
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
        *(Column(name, "number", left_out=int(name == "on mps")) for name in _step_columns(diff)),
    )
    names = phase_words(diff.before, diff.after)
    rows = tuple((names[row.phase], *_step_cells(row)) for row in diff.phases if row.phase is not None)
    whole = ("whole step", *_step_cells(diff.phases[-1]))
    table = Table("step-table", columns, rows, sums=(whole,), caption=f"{remark.capitalize()}, by phase")
    return Section("step", diff.step_title, (table,), nav="Step", remark=remark, folded=False)


def _operators(diff: Diff) -> Iterator[Section]:
    """What became of operators that ran on the CPU in one of the two."""
    became = (
        ("now on the CPU", diff.now_on_cpu),
        ("now native", diff.now_native),
        ("no longer called", diff.no_longer_called),
    )
    rows = tuple((name, tuple(map(text.clean, operators))) for name, operators in became if operators)
    if rows:
        title = "Operators without an MPS kernel"
        yield Section("operators", title, (Facts(rows),), nav="Operators", folded=False)


def _figures(diff: Diff) -> Iterator[tuple[str, str]]:
    yield "findings new", f"{len(diff.new):,}"
    yield "findings gone", f"{len(diff.gone):,}"
    if diff.phases:
        columns = dict(zip(_step_columns(diff), _step_cells(diff.phases[-1]), strict=True))
        yield "operators on CPU, a step", columns["on CPU"] or "0"
        yield "waits, a step", columns["waits"] or "0"


def _verdict(diff: Diff) -> str:
    """`2.44 ms -> 1.43 ms a step on the Mac, 1.71 times as fast. Findings: 1 new, 2 gone.`"""
    numbers = [
        (len(diff.new), "new"),
        (len(diff.gone), "gone"),
        (len(diff.changed), "changed"),
        (diff.same, "as before"),
    ]
    words = ", ".join(f"{number:,} {word}" for number, word in numbers if number)
    findings = f"Findings: {words}." if words else "No findings in either recording."
    return " ".join(filter(None, (_step_sentence(diff), findings)))


def _step_sentence(diff: Diff) -> str:
    was, now = next((row.on_mac for row in diff.phases if row.phase is None and row.on_mac is not None), (0.0, 0.0))
    if not was or not now:
        return ""
    factor = f"{max(was, now) / min(was, now):.2f}"
    change = f"{factor} times as {'fast' if now < was else 'long'}" if factor != "1.00" else "as before"
    return f"{_both(text.duration(1e9 * was), text.duration(1e9 * now))} a step {ON_MAC}, {change}."


def _side(story: Story) -> str:
    """Script, Mac, torch, and how much was recorded."""
    calls = f"{text.plural(story.call_count, 'call')}, {text.plural(story.complete_steps, 'complete step')}"
    torch_version = f"torch {text.clean(story.run.torch_version)}" if story.run.torch_version else ""
    cut = "" if story.complete else "stops in the middle of the run"
    words = [script_of(story), text.clean(story.run.mac), torch_version, calls, cut]
    return ", ".join(word for word in words if word)


def numbers(both: FindingPair) -> str:
    """How often before and after, in a step where both are known."""
    in_steps = all(finding.per_step for finding in both)
    before, after = (finding.per_step if in_steps else float(finding.count) for finding in both)
    unit = "a step" if in_steps else "in the run"
    was, now = text.count(before) or "0", text.count(after) or "0"
    if was == now:
        return f"{now} {unit}, as before"
    return f"{was} {unit} before, {now} after{_ratio_words(before, after)}"


def _step_columns(diff: Diff) -> tuple[str, ...]:
    """The columns of the step's table, behind the phase."""
    return (*_STEP_COLUMNS, *_MAC_COLUMNS) if any(row.on_mac for row in diff.phases) else _STEP_COLUMNS


def _step_cells(row: PhaseChange) -> list[str]:
    """A phase's cells, by `step_columns`."""
    pairs = ((getattr(row.before, name), getattr(row.after, name)) for name in ("on_mps", "on_cpu", "waits"))
    cells = [_both(*map(text.count, pair)) for pair in pairs]
    times = _both(text.duration(row.before.time_ns), text.duration(row.after.time_ns))
    on_mac = []
    if row.on_mac is not None:
        was, now = row.on_mac
        on_mac = [_both(text.duration(1e9 * was), text.duration(1e9 * now)), _ratio(was, now)]
    return [*cells, times, _ratio(row.before.time_ns, row.after.time_ns), *on_mac]


def _memory(diff: Diff) -> str:
    """The peaks; the empty text where neither is known."""
    first, second = diff.memory_peaks
    if first is None and second is None:
        return ""
    was, now = _bytes(first), _bytes(second)
    return f"{now}, as before" if was == now else f"{was} before, {now} after{_ratio_words(first or 0, second or 0)}"


def _ratio_words(before: float, after: float) -> str:
    """` (x 0.50)`, or nothing where one of them is zero or the ratio rounds to one."""
    ratio = _ratio(before, after)
    return f" (x {ratio})" if ratio not in ("", "1.00") else ""


def _both(before: str, after: str) -> str:
    if before == after:
        return before
    return f"{before or '0'} -> {after or '0'}"


def _bytes(number: int | None) -> str:
    return "unknown" if number is None else text.size(number) or "0 B"


def _ratio(before: float, after: float) -> str:
    return f"{after / before:.2f}" if before > 0 and after > 0 else ""
