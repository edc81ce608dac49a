"""A plan as text: what fills the memory, on which Macs it fits, what changes would do, and what to do first."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anymps.report import _text as text

if TYPE_CHECKING:
    from anymps.plan import Assumption, Change, Plan, Row
    from anymps.record import Allocation, Holding, Moment

_WIDTH = 100
_HEADING = "bold cyan"
_QUIET = "dim"
_STYLES = {"fits": "green", "tight": "yellow", "pages": "bold yellow", "fails": "bold red"}
_MEANING = {
    "fits": "fits",
    "tight": "fits, with less than a tenth to spare",
    "pages": "runs, but above the working set: macOS pages, steps take ten to twenty times as long",
    "fails": "fails",
}
_BAR = 28
_MOST = 6

# The order in which the guides to training on Macs teach them, cheapest and safest first.
_FIRST_FIXES = (
    "Halve the batch, and accumulate gradients over two of them: the same training with less memory.",
    "Shorten the sequences or the pictures: activations grow with them, attention scores with their square.",
    "Remove what is kept by accident: a loss added up with its graph (use loss.detach()), outputs stored in a list.",
    "Recompute activations (torch.utils.checkpoint, gradient_checkpointing_enable()): a third more work.",
    "Lower the precision: torch.autocast('mps', dtype=torch.bfloat16) from M3 on, float16 with a GradScaler before.",
    "Last of all PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0: it lifts torch's limit, not the memory's; the system can fail.",
)

_LIMITS = (
    "Memory of MPSGraph (matrix products, convolutions) and of Metal itself is not in these numbers; leave it room.",
    "What the host keeps beside it (data sets, the Python process) is not counted, and a Mac has one memory for both.",
)


def print_plan(plan: Plan, stream: TextIO | None = None) -> None:
    """Write the plan to `stream` (by default standard output), as wide as its terminal and coloured if it is one."""
    target = sys.stdout if stream is None else stream
    terminal = target.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if terminal else _WIDTH
    shown = render_plan(plan, width=max(60, min(width, 120)), color=color)
    encoding = getattr(target, "encoding", None) or "utf-8"
    target.write(shown.encode(encoding, "replace").decode(encoding))


def render_plan(plan: Plan, *, width: int = _WIDTH, color: bool = False) -> str:
    """The plan as text; without colour there are no control sequences and no spaces at the ends of lines."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for part in _parts(plan, width):
        console.print(part)
    if color:
        return stream.getvalue()
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _parts(plan: Plan, width: int) -> Iterator[RenderableType]:
    peak = plan.base.story.peak
    assert peak is not None
    yield from _verdict(plan, peak)
    yield from _peak(plan, peak)
    yield from _modules(peak)
    yield from _lines(peak, width)
    yield from _growth(plan)
    yield from _macs(plan.rows)
    yield from _changes(plan.changes, plan)
    yield from _fixes(plan)
    yield from _assumptions(plan.base.assumptions)
    yield from _heading("Limits of this plan")
    for sentence in _LIMITS:
        yield _indented(Text(f"- {sentence}"))


def _heading(title: str, remark: str = "") -> Iterator[Text]:
    yield Text()
    yield Text.assemble((title, _HEADING), (f"  {remark}" if remark else "", _QUIET))


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)


def _table(*columns: tuple[str, str]) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=_QUIET)
    for name, justify in columns:
        grid.add_column(name, justify="right" if justify == "right" else "left", no_wrap=justify != "wrap")
    return grid


def _verdict(plan: Plan, peak: Moment) -> Iterator[RenderableType]:
    script = text.clean(plan.script)
    if plan.mac is not None:
        outcome = plan.rows[0].outcome
        style = _STYLES[outcome.verdict.value]
        yield Text(f"On {plan.mac.name}: {_MEANING[outcome.verdict.value]}.", style=style)
        if outcome.message:
            yield Text(text.clean(outcome.message))
    else:
        good = [row.outcome.mac for row in plan.rows if row.outcome.verdict.value in ("fits", "tight")]
        least = f"from {min(mac.ram_gib for mac in good)} GB on" if good else "on no Mac"
        yield Text(f"Fits {least}.", style="bold green" if good else "bold red")
    batch = f", batch {plan.base.batch}" if plan.base.batch else ""
    yield Text(
        f"{script}{batch}: at its peak {text.size(peak.allocated)} in tensors and "
        f"{text.size(plan.base.story.peak_reserved)} of the allocator's heaps, in step {peak.step + 1}, "
        f"{peak.phase.label}"
        + (f", at {text.place(peak.site, os.getcwd())}" if peak.site.known else "")
        + f" (torch {plan.torch}, {text.plural(plan.base.steps, 'step')} measured on shapes)."
    )


def _peak(plan: Plan, peak: Moment) -> Iterator[RenderableType]:
    yield from _heading("What fills the memory at the peak")
    grid = _table(("", "left"), ("size", "right"), ("share", "right"), ("", "left"))
    rows = [(category.value, size) for category, size in peak.by_category.items() if size]
    whole = max(1, peak.allocated)
    for name, size in sorted(rows, key=lambda row: -row[1]):
        grid.add_row(name, text.size(size), text.percent(size, whole), "#" * max(1, round(_BAR * size / whole)))
    grid.add_row(
        Text("rounding, in the above", _QUIET), text.size(peak.rounding), text.percent(peak.rounding, whole), ""
    )
    grid.add_row(Text("heaps beyond that: cache", _QUIET), text.size(peak.cached), text.percent(peak.cached, whole), "")
    yield _indented(grid)


def _modules(peak: Moment) -> Iterator[RenderableType]:
    held = [one for one in peak.by_module() if one.bytes]
    if not held:
        return
    yield from _heading("Activations by module", "kept for the backward, at the peak")
    grid = _table(("size", "right"), ("tensors", "right"), ("module", "left"))
    for one in held[:_MOST]:
        grid.add_row(text.size(one.bytes), text.count(one.count), text.clean(one.module) or "outside any module")
    yield _indented(grid)
    yield from _more(held)


def _lines(peak: Moment, width: int) -> Iterator[RenderableType]:
    held = [one for one in peak.by_site() if one.site.known]
    if not held:
        return
    yield from _heading("Your lines that hold most", "at the peak")
    grid = _table(("size", "right"), ("what", "left"), ("operator", "left"), ("line", "left"))
    for one in held[:_MOST]:
        operator = one.operator.removeprefix("aten::")
        grid.add_row(text.size(one.bytes), one.category.value, text.clean(operator), text.place(one.site, os.getcwd()))
    yield _indented(grid)
    yield from _more(held)


def _more(held: Sequence[Holding]) -> Iterator[RenderableType]:
    rest = held[_MOST:]
    if rest:
        yield _indented(Text(f"and {len(rest)} more with {text.size(sum(one.bytes for one in rest))}", _QUIET))


def _growth(plan: Plan) -> Iterator[RenderableType]:
    steps = plan.base.story.steps()
    if len(steps) < 3:
        return
    growth = min(later.after - earlier.after for earlier, later in pairwise(steps[1:]))
    if growth > 0:
        yield from _heading("It grows")
        yield _indented(
            Text(f"Each step leaves {text.size(growth)} more behind than the one before: something is kept.")
        )


def _macs(rows: Sequence[Row]) -> Iterator[RenderableType]:
    yield from _heading("On Macs", "macOS as in `anymps plan --mac`; the working set is what Metal recommends")
    batches = any(row.largest_batch is not None for row in rows)
    columns = [("Mac", "left"), ("working set", "right"), ("peak", "right"), ("margin", "right"), ("", "left")]
    grid = _table(*columns, *([("largest batch", "right")] if batches else []))
    for row in rows:
        outcome = row.outcome
        verdict = outcome.verdict.value
        at = ""
        if outcome.failing is not None:
            at = f" in step {outcome.failing.step + 1}, {outcome.failing.phase.label}"
        peak = "" if verdict == "fails" else text.size(outcome.peak_reserved)
        margin = "" if verdict == "fails" else _signed(outcome.margin)
        cells: list[Any] = [
            outcome.mac.name,
            text.size(outcome.mac.recommended_max_memory),
            peak,
            margin,
            Text(verdict + at, _STYLES[verdict]),
        ]
        if batches:
            cells.append("?" if row.largest_batch is None else str(row.largest_batch or "none"))
        grid.add_row(*cells)
    yield _indented(grid)
    if not batches:
        yield _indented(
            Text(
                "The largest batch is unknown: no data loader gives batches. Put {batch} where the script's "
                "arguments have its size, and give --batch.",
                _QUIET,
            )
        )


def _signed(number: int) -> str:
    return f"-{text.size(-number)}" if number < 0 else text.size(number)


def _changes(changes: Sequence[Change], plan: Plan) -> Iterator[RenderableType]:
    if not changes:
        return
    yield from _heading("What if", "each change alone, measured the same way")
    whole = plan.base.story.peak_reserved
    tensors = plan.base.story.peak.allocated if plan.base.story.peak else 0
    grid = _table(("change", "left"), ("tensors", "right"), ("heaps", "right"), ("", "right"), ("", "wrap"))
    grid.add_row("as written", text.size(tensors), text.size(whole), "", "")
    for change in changes:
        if change.problem:
            grid.add_row(change.scenario.label, "", "", "", text.clean(change.problem))
            continue
        ratio = f"{change.peak_allocated / max(1, tensors):.2f}x"
        verdict = ""
        if change.outcome is not None:
            verdict = f"{change.outcome.verdict.value} on {change.outcome.mac.name}"
        grid.add_row(
            change.scenario.label, text.size(change.peak_allocated), text.size(change.peak_reserved), ratio, verdict
        )
    yield _indented(grid)


def _fixes(plan: Plan) -> Iterator[RenderableType]:
    if all(row.outcome.verdict.value == "fits" for row in plan.rows):
        return
    yield from _heading("If it does not fit", "in this order")
    for number, fix in enumerate(_FIRST_FIXES, 1):
        yield _indented(Text(f"{number}. {fix}"))


def _assumptions(assumptions: Sequence[Assumption]) -> Iterator[RenderableType]:
    if not assumptions:
        return
    yield from _heading(
        "Values that the script read", "a plan has none: numbers are 0, everything is nonzero and unique"
    )
    grid = _table(("times", "right"), ("what", "left"), ("line", "left"))
    for one in assumptions[:_MOST]:
        what = one.what.removeprefix("aten::")
        grid.add_row(
            text.count(one.count),
            text.clean(what),
            f"{text.path(one.file, os.getcwd())}:{one.line}" if one.file else "",
        )
    yield _indented(grid)
    if len(assumptions) > _MOST:
        yield _indented(Text(f"and {len(assumptions) - _MOST} more", _QUIET))


def plan_json(plan: Plan) -> str:
    """The plan as JSON: sizes in bytes, `margin` negative where the working set does not suffice."""
    peak = plan.base.story.peak
    assert peak is not None
    document = {
        "version": 1,
        "script": plan.script,
        "torch": plan.torch,
        "steps": plan.base.steps,
        "batch": plan.base.batch,
        "sequence": plan.base.sequence,
        "peak": {
            "allocated": peak.allocated,
            "reserved": plan.base.story.peak_reserved,
            "step": peak.step,
            "phase": peak.phase.label,
            "file": peak.site.file,
            "line": peak.site.line,
            "categories": {category.value: size for category, size in peak.by_category.items()},
            "activations": [
                {"module": one.module, "bytes": one.bytes, "tensors": one.count} for one in peak.by_module()
            ],
        },
        "macs": [
            {
                "mac": row.outcome.mac.name,
                "working_set": row.outcome.mac.recommended_max_memory,
                "verdict": row.outcome.verdict.value,
                "peak_allocated": row.outcome.peak_allocated,
                "peak_reserved": row.outcome.peak_reserved,
                "margin": row.outcome.margin,
                "message": row.outcome.message,
                "fails_in": _failing(row.outcome.failing),
                "largest_batch": row.largest_batch,
            }
            for row in plan.rows
        ],
        "what_if": [
            {
                "change": change.scenario.label,
                "peak_allocated": change.peak_allocated,
                "peak_reserved": change.peak_reserved,
                "verdict": change.outcome.verdict.value if change.outcome is not None else None,
                "problem": change.problem,
            }
            for change in plan.changes
        ],
        "assumptions": [
            {"what": one.what, "file": one.file, "line": one.line, "count": one.count} for one in plan.base.assumptions
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _failing(one: Allocation | None) -> dict[str, Any] | None:
    return {"step": one.step, "phase": one.phase.label} if one is not None else None
