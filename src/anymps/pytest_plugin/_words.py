"""Lines of code, tests and numbers as the gate words them."""

from __future__ import annotations

from collections.abc import Iterable

from anymps._paths import project_path
from anymps._text import plural
from anymps.record import Site

_NAMES = 3  # tests named for one line


def place(site: Site, root: str) -> str:
    """`lib/ops.py:12  | return torch.take(x, i)`; a file of an installed package from that package's folder."""
    if not site.known:
        return "an unknown line"
    return f"{project_path(site.file, (root,))}:{site.line}" + (f"  | {site.source}" if site.source else "")


def times(number: int) -> str:
    """`once`, `twice`, `12 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def names(tests: Iterable[str]) -> str:
    """The first tests, in order, and how many more there are."""
    ordered = sorted(tests)
    left = len(ordered) - _NAMES
    return ", ".join(ordered[:_NAMES]) + (f" and {plural(left, 'more test')}" if left > 0 else "")
