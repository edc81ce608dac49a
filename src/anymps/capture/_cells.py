"""Cells of a notebook: the files that Python takes them for, and the names that their reader knows them by."""

from __future__ import annotations

_names: dict[str, str] = {}


def name_cell(file: str, name: str) -> None:
    """In recordings the code of `file` has this name, as `cell 3`."""
    _names[file] = name


def shown_file(file: str) -> str:
    """A file's name in a recording."""
    return _names.get(file, file)
