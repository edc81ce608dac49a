"""What a file of rules has, and how the files are found: by lying in their package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Protocol

from anymps.findings._model import Finding, Rule
from anymps.record import Recording


class Family(Protocol):
    """One file: a rule, or a few closely bound ones."""

    @property
    def RULES(self) -> tuple[Rule, ...]:
        """Its rules."""

    def find(self, recording: Recording) -> Iterator[Finding]:
        """Findings of these rules."""


def families(package: str, folders: Iterable[str]) -> tuple[Family, ...]:
    """The modules of a package that lies in `folders`, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(folders))
    return tuple(importlib.import_module(f"{package}.{name}") for name in names)
