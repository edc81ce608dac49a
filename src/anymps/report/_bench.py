"""What `anymps bench` measured, as a document: times, comparisons, warnings, and what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from anymps.report.document import Block, Column, Document, Items, Prose, Section, Table


class Predicted(Protocol):
    """What was predicted for a timing: rows of cells where measured and predicted are compared, and sentences."""

    @property
    def rows(self) -> Sequence[Sequence[str]]:
        """Measured beside predicted."""
        ...

    @property
    def sentences(self) -> Sequence[str]:
        """What the rows come to."""
        ...


def bench_document(
    columns: tuple[Sequence[str], Sequence[str]],
    rows: Sequence[Sequence[str]],
    ratios: Sequence[str],
    warnings: Sequence[str],
    predictions: Sequence[Predicted],
) -> Document:
    """The timings as `rows`, one each; `columns` are the names of their cells and of those of the predictions."""
    first = dict(zip(columns[0], rows[0], strict=True))
    title = ratios[0] if len(ratios) == 1 else f"{first['']}: {first['median']} on {first['device']}"
    sections = [Section("times", "Times", (_table("times-table", columns[0], rows, words=2),), folded=False)]
    if ratios[1:]:
        sections.append(Section("ratios", "Compared", (Items(tuple(ratios)),), folded=False))
    if warnings:
        sections.append(Section("warnings", "Warnings", (Items(tuple(warnings)),), folded=False))
    blocks: list[Block] = []
    for number, prediction in enumerate(predictions, 1):
        if prediction.rows:
            blocks.append(_table(f"predicted-{number}", columns[1], prediction.rows, words=1))
        blocks.append(Prose(tuple(prediction.sentences)))
    if blocks:
        sections.append(Section("predicted", "Predicted", tuple(blocks), folded=False))
    return Document(
        title=f"anymps bench: {first['']}",
        kind="measurement",
        made_from="from timed runs",
        eyebrow=("anymps bench",),
        state="warning" if warnings else "clean",
        verdict=title,
        sections=tuple(sections),
    )


def _table(anchor: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, words: int) -> Table:
    """A table whose first columns are words, and the last one too if it has no name."""
    columns = tuple(Column(name, "text" if place < words or not name else "number") for place, name in enumerate(names))
    return Table(anchor, columns, tuple(tuple(row) for row in rows))
