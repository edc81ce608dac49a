"""Matches lines of a file before and after a change."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from anymps.source import rows, tree_of

_ONLY_MPS: Final = re.compile(r"\w+\.backends\.mps\.is_available\(\)")
_Block = tuple[str, int, int, int, int]  # as of SequenceMatcher.get_opcodes
_BRANCHES: Final = 3  # lines below the head: one statement for mps, `else:` and what stood there before


def new_line(before: str, after: str, line: int) -> int:
    """Where a line of the text `before` stands in the text `after`: the one most like it if it was changed."""
    for _, first, last, start, end in _blocks(before, after):
        if first < line <= last:
            if last - first == end - start or start == end:
                return start + min(line - first, max(end - start, 1))
            old, new = rows(before)[line - 1], rows(after)
            return max(range(start, end), key=lambda at: SequenceMatcher(None, old, new[at]).ratio()) + 1
    return line


def with_branches(text: str, lines: tuple[int, int]) -> tuple[int, int]:
    """The lines of a statement; of one in a branch of an edit, `if torch.backends.mps.is_available():`, all of it."""
    first, last = lines
    for node in ast.walk(tree_of(text)):
        if isinstance(node, ast.If) and node.orelse and _ONLY_MPS.fullmatch(ast.unparse(node.test)):
            end = node.end_lineno or node.lineno
            if node.lineno <= first and last <= end <= node.lineno + _BRANCHES:
                return node.lineno, end
    return lines


@lru_cache(maxsize=16)
def _blocks(before: str, after: str) -> Sequence[_Block]:
    """Where the lines of a text are after a change."""
    old, new = rows(before), rows(after)
    most = min(len(old), len(new))
    first = next((at for at in range(most) if old[at] != new[at]), most)
    same = next((at for at in range(most - first) if old[-1 - at] != new[-1 - at]), most - first)
    found: list[_Block]
    inner, other = old[first : len(old) - same], new[first : len(new) - same]
    if len(inner) == len(other):  # changed in place
        kinds = ("equal" if one == two else "replace" for one, two in zip(inner, other, strict=True))
        found = [(kind, at, at + 1, at, at + 1) for at, kind in enumerate(kinds)]
    else:
        found = list(SequenceMatcher(None, inner, other, autojunk=False).get_opcodes())
    return [
        ("equal", 0, first, 0, first),
        *((tag, start + first, last + first, begin + first, end + first) for tag, start, last, begin, end in found),
        ("equal", len(old) - same, len(old), len(new) - same, len(new)),
    ]
