"""An upgrade as a document: the table of releases and systems, what changes between them, what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.report import _text as text
from anymps.report.document import Column, Document, Facts, Form, Items, Measured, Section, State, Table
from anymps.report.upgrade import _words as words
from anymps.upgrade import Grid, Outcome, named

_MOST_CHANGES: Final = 30  # of one step; the JSON form has all


def upgrade_document(grid: Grid) -> Document:
    """All that an upgrade says, for all forms that people read."""
    script = text.path(grid.run.script, grid.run.directory)
    made_by = f"torch {text.clean(grid.run.torch_version)}"
    return Document(
        title=f"anymps upgrade: {script} on {grid.mac.name}",
        kind="table",
        made_from=f"from a recording by {made_by}",
        eyebrow=("anymps upgrade", *filter(None, (script,)), grid.mac.name, f"recorded with {made_by}"),
        state=_state(grid.choice.outcome if grid.subjects else Outcome.UNKNOWN),
        verdict=words.advice(grid),
        sections=tuple(_sections(grid)),
    )


def _state(outcome: Outcome) -> State:
    if outcome >= Outcome.WRONG:
        return "error"
    return "warning" if outcome >= Outcome.ON_CPU else "info" if outcome else "clean"


def _sections(grid: Grid) -> Iterator[Section]:
    yield Section("releases", "Releases and systems", (_table(grid),), nav="Table", folded=False, headed=Form.PAGE)
    directory = grid.run.directory
    items = tuple(f"{step.title}: {told}" for step in words.steps(grid) for told in _told(step.changes, directory))
    if items:
        yield Section("changes", "What changes", (Items(items),), folded=False)
    if standing := words.standing(grid):
        yield Section("standing", "The same in all of them", (Items(_told(standing, directory)),), folded=False)
    yield Section("unknown", "What is not known", (Items(tuple(words.remarks(grid))),), nav="Not known", folded=False)
    yield Section("sources", "Sources", (Facts(tuple(words.sources(grid))),), forms=Form.PAGE | Form.MARKDOWN)


def _told(changes: tuple[words.Change, ...], directory: str) -> tuple[str, ...]:
    shown = tuple(words.told(change, directory) for change in changes[:_MOST_CHANGES])
    left = len(changes) - _MOST_CHANGES
    return (*shown, f"{text.plural(left, 'more change')} in the JSON form") if left > 0 else shown


def _table(grid: Grid) -> Table:
    timed = bool(grid.times)
    names = [words.head(grid, system) for system in grid.systems]
    columns = (
        Column("torch"),
        *(Column(name, "verdict") for name in (f"macOS {names[0]}", *names[1:])),
        *((Column("a step", "number"),) if timed else ()),
    )
    rows = []
    for release in grid.releases:
        cells = [words.cell_words(grid.at(release, system)) for system in grid.systems]
        time = grid.times.get(release)
        step = [Measured(text.duration(1e9 * time.seconds), time.seconds) if time else "-"] if timed else []
        remarks = ["recorded"] if release == grid.made_by else []
        remarks += ["best"] if release == grid.choice.release else []
        rows.append((f"{named(release)} {', '.join(remarks)}".strip(), *cells, *step))
    number = " In brackets: the lines of the script that it is true of." if _numbered(grid) else ""
    on = f", for which a step of {named(grid.made_by)}'s calls is predicted" if timed else ""
    return Table(
        "releases-table",
        columns,
        tuple(rows),
        caption="Releases of torch and versions of macOS",
        rest=f"* the system of this Mac ({grid.mac.name}){on}.{number}",
    )


def _numbered(grid: Grid) -> bool:
    return any(cell.lines.get(cell.outcome) for cell in grid.cells.values())
