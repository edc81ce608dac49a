"""An upgrade as JSON, by the schema in `docs/schema/upgrade-1.json`."""

from __future__ import annotations

from anymps.report._objects import as_json, site_object
from anymps.report._text import clean
from anymps.report.upgrade import _words as words
from anymps.upgrade import Cell, Grid, named


def upgrade_json(grid: Grid) -> str:
    """The table, what changes, and the release to use."""
    content = {
        "run": {name: clean(getattr(grid.run, name)) for name in ("script", "directory", "torch_version")},
        "mac": grid.mac.name,
        "releases": [named(release) for release in grid.releases],
        "systems": [{"name": one.name, "first": named(one.first), "before": named(one.after)} for one in grid.systems],
        "use": {"torch": named(grid.choice.release), "macos": grid.system_of(grid.choice).name},
        "sentence": words.advice(grid),
        "cells": [_cell(grid, cell) for cell in grid.cells.values()],
        "steps": [
            {"torch": named(release), "seconds": time.seconds, "low": time.low, "high": time.high}
            for release, time in grid.times.items()
        ],
        "changes": [
            {"step": step.title, "changes": [_change(change) for change in step.changes]}
            for step in words.steps(grid)
            if step.changes
        ],
        "standing": [_change(change) for change in words.standing(grid)],
        "not_known": list(words.remarks(grid)),
        "sources": dict(words.sources(grid)),
    }
    return as_json("upgrade", content)


def _cell(grid: Grid, cell: Cell) -> dict[str, object]:
    return {
        "torch": named(cell.release),
        "macos": grid.system_of(cell).name,
        "outcome": cell.outcome.word,
        "no_device": cell.no_device,
        "lines": {outcome.word: number for outcome, number in sorted(cell.lines.items(), reverse=True)},
        "calls": [
            {
                "outcome": answer.outcome.word,
                "operator": subject.operator,
                "dtype": subject.dtype,
                "rule": subject.fault,
                "why": clean(answer.why),
                "site": site_object(subject.site),
            }
            for subject, answer in cell.answers.items()
        ],
    }


def _change(change: words.Change) -> dict[str, object]:
    return {
        "outcome": change.after.word,
        "sentence": clean(change.sentence),
        "rule": change.fault,
        "sites": [site_object(site) for site in change.sites],
    }
