"""A package interface whose names are loaded when they are first used, so importing one does not load all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_face(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `homes` has the names, with blanks between, by the module that defines them.

    For type checkers the face has the same names as imports under `TYPE_CHECKING`; `tests/test_lazy.py` compares them.
    """
    module_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        home = module_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)  # the next time it is found without asking
        return value

    return load
