"""What a recording means: findings with a stable id, a place, a cost, a reason and the smallest fix. Needs no torch."""

from __future__ import annotations

from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._registry import RULES, find, notes, unjudged

__all__ = ["RULES", "Finding", "Rule", "Severity", "find", "notes", "unjudged"]
