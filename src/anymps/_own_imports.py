"""Imports of what anymps itself needs, in a process whose script may have modules of the same names."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

_DEPENDENCIES: Final = frozenset(
    ("click", "jinja2", "markdown_it", "markupsafe", "mdurl", "platformdirs", "pygments", "rich", "tomli")
)
_LATE: Final = frozenset(("jinja2",))
"""Of these, what is loaded when it is needed: a copy that the script has loaded may be bound to modules of its own."""

_PLACES: Final = ("stdlib", "platstdlib", "purelib", "platlib")
_HOME: Final = str(Path(__file__).resolve().parents[1])
_path_at_start = tuple(sys.path)
_FINDERS_AT_START: Final = tuple(sys.meta_path)
_IMPORT: Final = builtins.__import__
_lock = threading.RLock()


def own_path() -> list[str]:
    """Where the interpreter has its library and its packages, then where it looked at the start; nothing newer."""
    places = tuple({os.path.realpath(sysconfig.get_path(name)) for name in _PLACES})
    first = [entry for entry in _path_at_start if _is_within(entry, places)]
    return [*first, _HOME, *(entry for entry in _path_at_start if entry not in first)]


def remember_path() -> None:
    """Take the import path as it is now for that of the start: Python was still adding to it when this was loaded."""
    global _path_at_start
    _path_at_start = tuple(sys.path)


def _is_within(entry: str, places: tuple[str, ...]) -> bool:
    if entry.endswith(".zip") or os.path.basename(entry) in ("site-packages", "dist-packages"):
        return True
    return f"{os.path.realpath(entry)}/".startswith(tuple(f"{place}/" for place in places))


@contextmanager
def own_imports() -> Iterator[None]:
    """Import, within this, from the interpreter's own path; afterwards the script's modules are in their places again.

    Code of the script that runs on another thread meanwhile may not find modules of its own.
    """
    with _lock:
        path, finders, function = sys.path, list(sys.meta_path), builtins.__import__
        own = own_path()
        hidden = _take(_foreign(own))
        sys.path = own
        # Finders of packages that are being worked on (editable ones) have been there from the beginning on.
        sys.meta_path[:] = _FINDERS_AT_START
        builtins.__import__ = _IMPORT
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path, builtins.__import__ = path, function
            sys.meta_path[:] = finders
            _take({name.partition(".")[0] for name in hidden})
            sys.modules.update(hidden)


@contextmanager
def forget() -> Iterator[None]:
    """Load, within this, what anymps needs, and take the packages that came with it out of `sys.modules` again.

    Whoever imports one afterwards gets that of its own path.
    """
    before = set(sys.modules)
    try:
        yield
    finally:
        _take(set(_DEPENDENCIES.difference(before)))


def hide_from_script() -> None:
    """Forget, before a script runs, what we have loaded and the script would find elsewhere: it gets its own.

    To be called once the script's folder is in `sys.path`.
    """
    own = own_path()
    _take(
        {
            name
            for name in _DEPENDENCIES.intersection(sys.modules)
            if _origin(name, sys.path) not in (None, _origin(name, own))
        }
    )


def _foreign(own: list[str]) -> set[str]:
    """Names of loaded modules that are the script's, and not those that we would import."""
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    found = {name for name in _DEPENDENCIES.intersection(sys.modules) if _file(name) != _origin(name, own)}
    for name in sys.stdlib_module_names.intersection(sys.modules):
        file = _file(name)
        if file is not None and not os.path.realpath(file).startswith(library) and "lib-dynload" not in file:
            found.add(name)
    return found | _LATE if found & _DEPENDENCIES else found


def _file(name: str) -> str | None:
    file = getattr(sys.modules[name], "__file__", None)
    return file if isinstance(file, str) else None


def _origin(name: str, path: list[str]) -> str | None:
    spec = PathFinder.find_spec(name, path)
    return spec.origin if spec is not None else None


def _take(names: set[str]) -> dict[str, ModuleType]:
    """Take modules with all below them out of `sys.modules`."""
    taken = [name for name in tuple(sys.modules) if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in taken}
