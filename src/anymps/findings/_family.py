"""What a file of rules defines, and how the files are found in their package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Protocol

from anymps.findings._model import Finding, Rule
from anymps.record import Recording


class Family(Protocol):
    """One file: a rule, or a few closely bound ones."""

    __name__: str

    @property
    def RULES(self) -> tuple[Rule, ...]:
        """Its rules."""

    def find(self, recording: Recording) -> Iterator[Finding]:
        """Findings of these rules."""


def families(package: str, folders: Iterable[str]) -> tuple[Family, ...]:
    """The modules of a package that lies in `folders`, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(folders))
    return tuple(importlib.import_module(f"{package}.{name}") for name in names)


def by_id(files: Iterable[Family]) -> dict[str, Rule]:
    """The rules of some files, sorted by their ids.

    Raises RuntimeError, in one line, if an id is taken twice: a finding would be explained by the other rule.
    """
    homes: dict[str, str] = {}
    rules: dict[str, Rule] = {}
    for file in files:
        name = f"{file.__name__.rpartition('.')[2]}.py"
        for rule in file.RULES:
            if rule.id in homes:
                raise RuntimeError(
                    f"anymps: {rule.id} in {name} is taken: {homes[rule.id]} has it. Choose a free number."
                )
            homes[rule.id], rules[rule.id] = name, rule
    return dict(sorted(rules.items()))
