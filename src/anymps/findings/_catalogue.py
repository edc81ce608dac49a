"""The rules by their ids, what a comment or a setting may name, and the files that hold them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Final

from anymps._tables import read_table
from anymps.findings._costs import COPY, FALLBACK, ITEM, SYNCHRONIZE
from anymps.findings._model import Example, Rule, Severity
from anymps.findings.advice import REMEDIES
from anymps.record import Wait

RULES: Final[dict[str, Rule]] = {}
"""Every rule by its id; filled by `_registry.py`, by which other packages have it."""

_WORDS: Final = {
    "item": ITEM.source,
    "copy": COPY.source,
    "wait": SYNCHRONIZE.source,
    "fallback": FALLBACK.source,
    **REMEDIES,
}
"""What stands in braces in the texts of rules that are rows: sources of costs, and the remedies by their names."""


def read_rules(module: str, name: str) -> dict[str, Rule]:
    """The rules in a table beside a module, by their ids: the fields of `Rule` and of its example."""
    return {row["id"]: _rule(row) for row in read_table(module, name)["rule"]}


def _rule(row: dict[str, Any]) -> Rule:
    for field in ("why", "fix", "source"):
        row[field] = re.sub(r"\{(\w+)\}", lambda word: _WORDS.get(word[1], word[0]), row[field])
    for field in ("since", "until"):
        if field in row:
            row[field] = tuple(map(int, row[field].split(".")))
    row["severity"] = Severity[row.get("severity", "error").upper()]
    row["waits"] = frozenset(Wait[kind.upper()] for kind in row.get("waits", ()))
    return Rule(**{**row, "example": Example(**row["example"])})


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
