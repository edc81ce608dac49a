"""Tables of facts: TOML files beside the modules that read them, which come with them in the wheel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Row = TypeVar("Row")


def read_table(module: str, name: str) -> dict[str, Any]:
    """The file of that name in the folder of a module, whose `__file__` is given."""
    table: dict[str, Any] = tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))
    return table


def row(kind: Callable[..., Row], given: Mapping[str, Any]) -> Row:
    """A row as a typed value, lists as tuples. Raises TypeError for a field that the type lacks, or that is missing."""
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
