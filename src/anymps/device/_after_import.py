"""Changes a module of someone else's right after it has been imported."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Change = Callable[[ModuleType], None]

_changes: dict[str, list[Change]] = {}


class _Finder(MetaPathFinder):
    """Finds these modules where they lie, and has them changed once they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if _changes.get(fullname) else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(_executed, loader.exec_module)
        return spec


def _executed(execute: Change, module: ModuleType) -> None:
    execute(module)
    for change in list(_changes[module.__name__]):
        change(module)


_finder = _Finder()


def after_import(name: str, change: Change) -> Callable[[], None]:
    """Have a module changed: now where it is loaded, else when it is. The result ends that, and undoes nothing."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _changes.setdefault(name, []).append(change)
    if name in sys.modules:
        change(sys.modules[name])
    return functools.partial(_changes[name].remove, change)
