"""A plan as text: its verdict and which Mac; on demand what fills the memory, each Mac's limits, what to do first."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from anymps.report import _text as text
from anymps.report._console import DEFAULT_WIDTH, QUIET, fitting, heading, indented, printed
from anymps.report._memory_rows import beyond
from anymps.report.plan import _batch_words as batch_words
from anymps.report.plan import _choice_words as choice_words
from anymps.report.plan import _words as words
from anymps.report.plan._chart import BLOCKS, Glyphs, batch_chart, glyphs_for, mac_chart, memory_chart, time_chart

if TYPE_CHECKING:
    from anymps.plan import Plan
    from anymps.record import Moment

_STYLES = {"fits": "bold green", "tight": "yellow", "pages": "bold yellow", "fails": "bold red"}
_BAR = 28
_TIMES_REMARK = "predicted, with 80 % intervals"


def print_plan(plan: Plan, stream: TextIO | None = None, *, verbose: bool = False) -> None:
    """Write the plan to `stream` (by default standard output), as wide as its terminal and coloured if it is one.

    With `verbose` all of it, else what a person needs to decide.
    """
    target = sys.stdout if stream is None else stream
    terminal = target.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if terminal else DEFAULT_WIDTH
    encoding = getattr(target, "encoding", None) or "utf-8"
    shown = render_plan(plan, width=fitting(width), color=color, glyphs=glyphs_for(encoding), verbose=verbose)
    target.write(shown.encode(encoding, "replace").decode(encoding))


def render_plan(
    plan: Plan,
    *,
    width: int = DEFAULT_WIDTH,
    color: bool = False,
    glyphs: Glyphs = BLOCKS,
    verbose: bool = False,
) -> str:
    """The plan as text; without colour there are no control sequences and no spaces at the ends of lines.

    With `verbose` all of it, else what a person needs to decide.
    """
    return printed(_parts(plan, width, glyphs, verbose), width, color=color)


def _parts(plan: Plan, width: int, glyphs: Glyphs, verbose: bool) -> Iterator[RenderableType]:
    peak = plan.base.story.peak
    assert peak is not None
    yield from _first(plan, peak, width)
    if verbose:
        yield from _rest(plan, peak, width, glyphs)
        return
    if words.growth(plan):
        yield Text()
        yield Text(words.growth(plan))
    yield from _what_if(plan)
    for fix in words.fixes(plan):
        if fix.begin:
            yield Text()
            yield Text.assemble(("Change first. ", "bold"), " ".join(filter(None, (fix.text, fix.here))))
    yield Text()
    yield Text(choice_words.more(plan), QUIET)


def _first(plan: Plan, peak: Moment, width: int) -> Iterator[RenderableType]:
    """The first screen: the verdict, the peak, and which Mac."""
    yield Text(words.headline(plan), style=_STYLES[words.worst(plan)])
    for message in words.messages(plan):
        yield Text(message)
    yield Text(words.summary(plan, peak))
    if words.dropped(plan):
        yield Text(words.dropped(plan))
    yield from _section(choice_words.TITLE, choice_words.remark(plan), choice_words.choice_rows(plan, width - 4))


def _rest(plan: Plan, peak: Moment, width: int, glyphs: Glyphs) -> Iterator[RenderableType]:
    """What the answer rests on."""
    yield from _title("Memory over the measured steps", "allocations in their order, highest moments")
    yield from _drawing(memory_chart(plan.base.story, width - 2, glyphs))
    yield from _peak(peak)
    yield from _section("Activations by module", "kept for the backward, at the peak", words.module_rows(peak))
    yield from _section("Your lines that hold most", "at the peak", words.line_rows(peak))
    if words.growth(plan):
        yield from _title("It grows")
        yield indented(Text(words.growth(plan)))
    yield from _section(
        "On Macs", "macOS as in `anymps plan --mac`; the working set is what Metal recommends", words.mac_rows(plan)
    )
    yield from _title("The peak on each Mac", "each on a scale of its own")
    yield from _drawing(mac_chart(plan, width - 2, glyphs))
    if plan.times:
        yield from _section(
            f"A step on {'these Macs' if plan.asked else 'each chip'}", _TIMES_REMARK, words.time_rows(plan)
        )
        yield Text()
        yield from _drawing(time_chart(plan, width - 2, glyphs))
    yield from _batches(plan, width, glyphs)
    yield from _what_if(plan)
    yield from _fixes(plan)
    yield from _section(
        "Values that the script read",
        "a plan has none: numbers are 0, everything is nonzero and unique",
        words.assumption_rows(plan),
    )
    yield from _title("Limits of this plan")
    for sentence in words.limits(plan):
        yield indented(Text(f"- {sentence}"))


def _what_if(plan: Plan) -> Iterator[RenderableType]:
    yield from _section("What if", "each change alone, measured the same way", words.change_rows(plan))


def _batches(plan: Plan, width: int, glyphs: Glyphs) -> Iterator[RenderableType]:
    """Batch against samples a second, by Mac."""
    if why := batch_words.without_batches(plan):
        yield from _title(batch_words.TITLE)
        yield indented(Text(why))
    names = f"on {plan.batches[0].mac.name}, " if len(plan.batches) == 1 else ""
    yield from _section(batch_words.TITLE, f"{names}{_TIMES_REMARK}", batch_words.batch_rows(plan, width - 4))
    for batches in plan.batches:
        yield Text()
        if len(plan.batches) > 1:
            yield indented(Text(batches.mac.name))
        yield from _drawing(batch_chart(batches, width - 2, glyphs))


def _title(title: str, remark: str = "") -> Iterator[Text]:
    return heading(title, remark, empty=True)


def _drawing(lines: list[str]) -> Iterator[RenderableType]:
    for line in lines:
        yield indented(Text(line, no_wrap=True, overflow="crop"))


def _table(columns: tuple[str, ...], numbers: tuple[int, ...]) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
    for place, name in enumerate(columns):
        # Verdicts and the problems of a change may be long; they stand in columns without a name.
        grid.add_column(name, justify="right" if place in numbers else "left", no_wrap=bool(name))
    return grid


def _section(title: str, remark: str, rows: words.Rows) -> Iterator[RenderableType]:
    if not rows.rows:
        return
    yield from _title(title, remark)
    columns = tuple("" if name == "verdict" else name for name in rows.columns)
    grid = _table(columns, rows.numbers)
    for row in rows.rows:
        grid.add_row(*(Text(cell, _STYLES.get(cell.split(" ")[0], "")) for cell in row))
    yield indented(grid)
    if rows.rest:
        yield indented(Text(rows.rest, QUIET))


def _peak(peak: Moment) -> Iterator[RenderableType]:
    yield from _title("What fills the memory at the peak")
    grid = _table(("", "size", "share", " "), (1, 2))
    whole = max(1, peak.allocated)
    for name, size in words.categories(peak):
        grid.add_row(name, text.size(size), text.percent(size, whole), "#" * max(1, round(_BAR * size / whole)))
    for name, *cells in beyond(peak):
        grid.add_row(Text(name, QUIET), *cells, "")
    yield indented(grid)


def _fixes(plan: Plan) -> Iterator[RenderableType]:
    if not plan.fixes:
        return
    yield from _title("What to change first", "in this order")
    grid = Table.grid(padding=(0, 1, 0, 0))
    for number, fix in enumerate(words.fixes(plan), 1):
        grid.add_row(f"{number}.", Text.assemble(("Begin here. ", "bold") if fix.begin else "", fix.text))
        if fix.here:
            grid.add_row("", Text(fix.here, QUIET))
    yield indented(grid)
