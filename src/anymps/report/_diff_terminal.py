"""A comparison for a terminal or a pipe: verdict, findings, the step side by side, operators, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from anymps.findings import Finding
from anymps.record import PhaseShare
from anymps.report import _text as text
from anymps.report._console import DEFAULT_WIDTH, QUIET, STYLES, fitting, heading, indented, pairs, printed
from anymps.report._diff import Diff, PhaseChange, Side, frequency


def render_diff_terminal(diff: Diff, *, width: int | None = None, color: bool = False) -> str:
    """The comparison as text, by default 100 columns wide and without colour."""
    return printed(_parts(diff), fitting(width or DEFAULT_WIDTH), color=color)


def _parts(diff: Diff) -> Iterator[RenderableType]:
    yield Text(_verdict(diff), style="bold red" if diff.new else "bold green")
    yield pairs([("before", Text(_side(diff.before))), ("after", Text(_side(diff.after)))])
    yield from _findings("New findings", diff.new, diff.after.directory)
    yield from _findings("Findings that are gone", diff.gone, diff.before.directory)
    yield from _changed(diff)
    yield from _step(diff.phases)
    yield from _operators(diff)
    first, second = diff.memory_peaks
    if first is not None or second is not None:
        yield from heading("Memory at its peak")
        yield indented(Text(f"{_bytes(first)} before, {_bytes(second)} after{_ratio_words(first or 0, second or 0)}"))


def _verdict(diff: Diff) -> str:
    numbers = [
        (len(diff.new), "new"),
        (len(diff.gone), "gone"),
        (len(diff.changed), "changed"),
        (diff.same, "as before"),
    ]
    words = ", ".join(f"{number:,} {word}" for number, word in numbers if number)
    return f"Findings: {words}." if words else "No findings in either recording."


def _side(side: Side) -> str:
    calls = f"{text.plural(side.calls, 'call')}, {text.plural(side.complete_steps, 'complete step')}"
    torch_version = f"torch {side.torch_version}" if side.torch_version else ""
    cut = "" if side.complete else "stops in the middle of the run"
    words = [text.path(side.script, side.directory), side.mac, torch_version, calls, cut]
    return ", ".join(word for word in words if word)


def _findings(title: str, findings: Sequence[Finding], directory: str) -> Iterator[RenderableType]:
    if not findings:
        return
    yield from heading(title)
    for finding in findings:
        yield indented(_title(finding, directory))
        yield pairs([("  ", Text(text.clean(finding.what)))])


def _title(finding: Finding, directory: str) -> Text:
    return Text.assemble(
        (f"{finding.id} {finding.severity.label}", STYLES[finding.severity]),
        f"  {text.place(finding.site, directory)}  ",
        (text.clean(finding.title), "bold"),
    )


def _changed(diff: Diff) -> Iterator[RenderableType]:
    if not diff.changed:
        return
    yield from heading("Findings in other numbers")
    for change in diff.changed:
        before, after = frequency(change.before), frequency(change.after)
        unit = "a step" if change.before.per_step and change.after.per_step else "in the run"
        if unit == "in the run":
            before, after = float(change.before.count), float(change.after.count)
        yield indented(_title(change.after, diff.after.directory))
        numbers = f"{text.count(before) or '0'} {unit} before, {text.count(after) or '0'} after"
        yield pairs([("  ", Text(numbers + _ratio_words(before, after)))])


def _step(phases: Sequence[PhaseChange]) -> Iterator[RenderableType]:
    if not phases:
        yield from heading("The training step", empty=True)
        yield indented(Text("Not compared: a recording without a complete step has none."))
        return
    yield from heading("The training step", "before, after, and after / before of the times")
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
    grid.add_column("phase", no_wrap=True)
    for name in ("on mps", "on CPU", "waits", "time", "ratio"):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in phases:
        if not row.phase:
            grid.add_row()
        cells = [_both(*map(text.count, pair)) for pair in _numbers(row.before, row.after)]
        times = _both(text.duration(row.before.time_ns), text.duration(row.after.time_ns))
        ratio = _ratio(row.before.time_ns, row.after.time_ns)
        style = "" if row.phase else "bold"
        grid.add_row(*map(Text, (row.phase or "whole step", *cells, times, ratio)), style=style)
    yield indented(grid)


def _numbers(before: PhaseShare, after: PhaseShare) -> list[tuple[float, float]]:
    return [(before.on_mps, after.on_mps), (before.on_cpu, after.on_cpu), (before.waits, after.waits)]


def _both(before: str, after: str) -> str:
    if before == after:
        return before
    return f"{before or '0'} > {after or '0'}"


def _operators(diff: Diff) -> Iterator[RenderableType]:
    rows = [
        ("now on the CPU", diff.now_on_cpu),
        ("now native", diff.now_native),
        ("no longer called", diff.no_longer_called),
    ]
    shown = [(name, Text(", ".join(map(text.clean, operators)))) for name, operators in rows if operators]
    if shown:
        yield from heading("Operators without an MPS kernel")
        yield pairs(shown)


def _bytes(number: int | None) -> str:
    return "unknown" if number is None else text.size(number) or "0 B"


def _ratio(before: float, after: float) -> str:
    return f"{after / before:.2f}" if before > 0 and after > 0 else ""


def _ratio_words(before: float, after: float) -> str:
    ratio = _ratio(before, after)
    return f" (x {ratio})" if ratio else ""
