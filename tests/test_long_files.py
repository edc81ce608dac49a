"""Long test files come first, so that no process waits for the last one of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from long_files import LONG, longest_first


class Item:
    """What is asked of a collected test."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_long_files_come_first() -> None:
    """The longest first; the others stay in their order, and so do the tests of a file."""
    ids = [
        "tests/a.py::b",
        "tests/a.py::a",
        f"{LONG[3]}::two[x::y]",
        f"{LONG[3]}::one",
        "tests/b.py::c",
        f"{LONG[0]}::z",
    ]
    items = [Item(nodeid) for nodeid in ids]
    longest_first(items)  # type: ignore[arg-type]
    assert [ids.index(item.nodeid) for item in items] == [5, 2, 3, 0, 1, 4]


@pytest.mark.parametrize("file", LONG)
def test_every_long_file_is_there(file: str) -> None:
    """A file that was renamed is no longer listed."""
    assert Path(__file__).parents[1].joinpath(file).is_file()


def test_make_keeps_the_order() -> None:
    """pytest-xdist would sort the files by their number of tests."""
    assert "--no-loadscope-reorder" in Path(__file__).parents[1].joinpath("Makefile").read_text(encoding="utf-8")
