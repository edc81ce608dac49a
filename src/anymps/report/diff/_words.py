"""The sentences and cells of a comparison, alike in all its forms."""

from __future__ import annotations

from anymps.findings import Story
from anymps.report import _text as text
from anymps.report._predicted import ON_MAC
from anymps.report.diff._compare import Change, Diff, PhaseChange, frequency, script_of

STEP_COLUMNS = ("on mps", "on CPU", "waits", "time", "ratio")
MAC_COLUMNS = (ON_MAC, "its ratio")
"""Those of the predicted time, where both recordings have one."""

OTHER_SCRIPT = "named differently: findings were matched by rule, function, line of code and operator, not by file"


def verdict(diff: Diff) -> str:
    """`2.44 ms -> 1.43 ms a step on the Mac, 1.71 times as fast. Findings: 1 new, 2 gone.`"""
    numbers = [
        (len(diff.new), "new"),
        (len(diff.gone), "gone"),
        (len(diff.changed), "changed"),
        (diff.same, "as before"),
    ]
    words = ", ".join(f"{number:,} {word}" for number, word in numbers if number)
    findings = f"Findings: {words}." if words else "No findings in either recording."
    return " ".join(filter(None, (_step(diff), findings)))


def _step(diff: Diff) -> str:
    was, now = next((row.on_mac for row in diff.phases if row.phase is None and row.on_mac is not None), (0.0, 0.0))
    if not was or not now:
        return ""
    factor = f"{max(was, now) / min(was, now):.2f}"
    change = f"{factor} times as {'fast' if now < was else 'long'}" if factor != "1.00" else "as before"
    return f"{_both(text.duration(1e9 * was), text.duration(1e9 * now))} a step {ON_MAC}, {change}."


def side(story: Story) -> str:
    """Script, Mac, torch, and how much was recorded."""
    calls = f"{text.plural(story.call_count, 'call')}, {text.plural(story.complete_steps, 'complete step')}"
    torch_version = f"torch {text.clean(story.run.torch_version)}" if story.run.torch_version else ""
    cut = "" if story.complete else "stops in the middle of the run"
    words = [script_of(story), text.clean(story.run.mac), torch_version, calls, cut]
    return ", ".join(word for word in words if word)


def numbers(change: Change) -> str:
    """How often before and after, in a step where both are known."""
    if change.before.per_step and change.after.per_step:
        before, after, unit = frequency(change.before), frequency(change.after), "a step"
    else:
        before, after, unit = float(change.before.count), float(change.after.count), "in the run"
    was, now = text.count(before) or "0", text.count(after) or "0"
    if was == now:
        return f"{now} {unit}, as before"
    return f"{was} {unit} before, {now} after{ratio_words(before, after)}"


def step_columns(diff: Diff) -> tuple[str, ...]:
    """The columns of the step's table, behind the phase."""
    return (*STEP_COLUMNS, *MAC_COLUMNS) if any(row.on_mac for row in diff.phases) else STEP_COLUMNS


def step_cells(row: PhaseChange) -> list[str]:
    """A phase's cells, by `step_columns`."""
    pairs = ((getattr(row.before, name), getattr(row.after, name)) for name in ("on_mps", "on_cpu", "waits"))
    cells = [_both(*map(text.count, pair)) for pair in pairs]
    times = _both(text.duration(row.before.time_ns), text.duration(row.after.time_ns))
    on_mac = []
    if row.on_mac is not None:
        was, now = row.on_mac
        on_mac = [_both(text.duration(1e9 * was), text.duration(1e9 * now)), _ratio(was, now)]
    return [*cells, times, _ratio(row.before.time_ns, row.after.time_ns), *on_mac]


def operator_rows(diff: Diff) -> list[tuple[str, list[str]]]:
    """What became of operators that ran on the CPU in one of the two."""
    rows = [
        ("now on the CPU", diff.now_on_cpu),
        ("now native", diff.now_native),
        ("no longer called", diff.no_longer_called),
    ]
    return [(name, [text.clean(operator) for operator in operators]) for name, operators in rows if operators]


def memory(diff: Diff) -> str:
    """The peaks; the empty text where neither is known."""
    first, second = diff.memory_peaks
    if first is None and second is None:
        return ""
    was, now = _bytes(first), _bytes(second)
    return f"{now}, as before" if was == now else f"{was} before, {now} after{ratio_words(first or 0, second or 0)}"


def ratio_words(before: float, after: float) -> str:
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
