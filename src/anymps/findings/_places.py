"""How a sentence names a line: of a file, or of a cell of a notebook."""

from __future__ import annotations

import re

from anymps.record import Site

_CELL = re.compile(r"cell \d+")


def numbered(name: str, line: int) -> str:
    """`train.py:12`; of a cell of a notebook `cell 3, line 2`."""
    return f"{name}, line {line}" if _CELL.fullmatch(name) else f"{name}:{line}"


def at(site: Site) -> str:
    """`train.py:12`, the file without its directories."""
    return numbered(site.file.replace("\\", "/").rpartition("/")[2], site.line)
