"""The kernels of a release at a glance: how many names begin with the same word, in as many columns as fit."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import TextIO

from anymps.report._text import plural
from anymps.report.document import look_of

_BETWEEN = 3  # blanks


def kernel_families(families: Mapping[str, int], dtypes: Mapping[str, int], release: str, target: TextIO) -> str:
    """The families, by a pattern each, and the dtypes, with their numbers of kernels: as wide as fits `target`.

    The last line says how to see names.
    """
    width, _ = look_of(target)
    cells = [(pattern, f"{count:,}") for pattern, count in families.items()]
    most = next(number for number in range(len(cells), 0, -1) if number == 1 or _width(cells, number) <= width)
    columns = [_column(part) for part in _parts(cells, most)]
    lines = [
        (" " * _BETWEEN).join(column[row] for column in columns if row < len(column)) for row in range(len(columns[0]))
    ]
    told = ", ".join(f"{name} {count:,}" for name, count in dtypes.items()) or "none in the names"
    return "\n".join(
        (
            f"torch {release} has {plural(sum(families.values()), 'Metal kernel')}; by the first word of the name:",
            "",
            *lines,
            "",
            *wrap(f"dtypes: {told}", width),
            f"names: anymps kernels list '{cells[0][0]}', or --all for every one",
        )
    )


def _parts(cells: list[tuple[str, str]], columns: int) -> list[list[tuple[str, str]]]:
    """The cells from top to bottom, in no more than so many columns, all but the last of one length."""
    rows = -(-len(cells) // columns)
    return [cells[at : at + rows] for at in range(0, len(cells), rows)]


def _column(cells: list[tuple[str, str]]) -> list[str]:
    """Patterns to the left, counts to the right."""
    left, right = (max(len(cell[side]) for cell in cells) for side in (0, 1))
    return [f"{pattern:<{left}}  {count:>{right}}" for pattern, count in cells]


def _width(cells: list[tuple[str, str]], columns: int) -> int:
    parts = [len(_column(part)[0]) for part in _parts(cells, columns)]
    return sum(parts) + _BETWEEN * (len(parts) - 1)
