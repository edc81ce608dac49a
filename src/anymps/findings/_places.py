"""Where a finding lies, in words that are the same on every machine: files as their project knows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

_CELL = re.compile(r"cell \d+")


def numbered(name: str, line: int) -> str:
    """`train.py:12`; of a cell of a notebook `cell 3, line 2`."""
    return f"{name}, line {line}" if _CELL.fullmatch(name) else f"{name}:{line}"


def project_path(file: str, roots: Sequence[str]) -> str:
    """A file from the first root above it, or from `site-packages`; as it is if it lies under none of them."""
    whole = PurePath(file)
    for root in roots:
        if root and whole.is_relative_to(root):
            return whole.relative_to(root).as_posix()
    parts = whole.parts
    if "site-packages" in parts:
        last = len(parts) - 1 - parts[::-1].index("site-packages")
        return PurePath(*parts[last + 1 :]).as_posix()
    return file
