"""The rules by their ids, known without the code that applies them: what a comment or a setting may name."""

from __future__ import annotations

import difflib
from typing import Final

from anymps.findings._model import Finding, Rule, Severity

RULES: Final[dict[str, Rule]] = {}
"""Every rule by its id; filled by `_registry.py`, by which other packages have it."""


_UNKNOWN: Final = Rule("", "", Severity.INFO, "", "", "", None)


def rule_of(finding: Finding) -> Rule:
    """The rule of a finding; one that says nothing for a finding of another anymps."""
    return RULES.get(finding.id, _UNKNOWN)


def nearest_rule(word: str) -> str:
    """The id of the rule that a misspelt one most likely means, empty if there is none like it."""
    likeness = {rule: difflib.SequenceMatcher(None, word.upper(), rule).ratio() for rule in RULES}
    # Ids differ in a digit or two, so many are equally alike: those of the same family come first.
    best = max(RULES, key=lambda rule: (likeness[rule], word.upper()[:4] == rule[:4]))
    return best if likeness[best] > 0.7 else ""
