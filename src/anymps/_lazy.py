"""A package interface whose names are loaded when they are first used, so importing one does not load all."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_IMPORT: Final = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def lazy_face(package: str, **hooks: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: each name is loaded from where its source imports it under `TYPE_CHECKING`.

    So type checkers and programs find a name in one place. `hooks` are names that only other programs look for, with
    their modules.
    """
    source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
    module_of = {name: f"{package}.{module}" for name, module in hooks.items()}
    for module, several, one in _IMPORT.findall(source):
        module_of.update(dict.fromkeys(re.findall(r"\w+", several or one), module))

    def load(name: str) -> Any:
        home = module_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)  # the next time it is found without asking
        return value

    return load
