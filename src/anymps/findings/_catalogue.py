"""The rules by their ids, what a comment or a setting may name, and the files that hold them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import Final

from anymps.findings._model import Rule

RULES: Final[dict[str, Rule]] = {}
"""Every rule by its id; filled by `_registry.py`, by which other packages have it."""


def nearest_rule(word: str) -> str:
    """The id of the rule that a misspelt one most likely means, empty if there is none like it."""
    likeness = {rule: difflib.SequenceMatcher(None, word.upper(), rule).ratio() for rule in RULES}
    # Ids differ in a digit or two, so many are equally alike: those of the same family come first.
    best = max(RULES, key=lambda rule: (likeness[rule], word.upper()[:4] == rule[:4]))
    return best if likeness[best] > 0.7 else ""


def rules_of(file: ModuleType) -> list[Rule]:
    """The rules that a file binds, by themselves or as `RULES`."""
    named = vars(file)
    return [*named.get("RULES", ()), *(value for value in named.values() if isinstance(value, Rule))]


def families(package: str, folders: Iterable[str]) -> tuple[ModuleType, ...]:
    """The modules of a package that lies in `folders`, by name.

    Each has `find(recording)`, or `find_after(recording, others)` where its findings go by those of all other files.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(folders))
    return tuple(importlib.import_module(f"{package}.{name}") for name in names)


def by_id(files: Iterable[ModuleType]) -> dict[str, Rule]:
    """The rules of some files, sorted by their ids.

    Raises RuntimeError, in one line, if an id is taken twice: a finding would be explained by the other rule.
    """
    homes: dict[str, str] = {}
    rules: dict[str, Rule] = {}
    for file in files:
        name = f"{file.__name__.rpartition('.')[2]}.py"
        for rule in rules_of(file):
            if rule.id in homes:
                raise RuntimeError(
                    f"anymps: {rule.id} in {name} is taken: {homes[rule.id]} has it. Choose a free number."
                )
            homes[rule.id], rules[rule.id] = name, rule
    return dict(sorted(rules.items()))
