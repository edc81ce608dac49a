"""What a recording means: findings with a stable id, a place, a cost, a reason and the smallest fix. Needs no torch."""

from __future__ import annotations

from anymps.findings._baseline import read_baseline, write_baseline
from anymps.findings._catalogue import RULES, nearest_rule, rule_of
from anymps.findings._example import Example
from anymps.findings._judgement import Judgement, Outcome, judge, unused
from anymps.findings._memory_limits import MemoryLimits, memory_limits
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._places import numbered
from anymps.findings._prices import step_on_mac
from anymps.findings._registry import find, is_refusal, notes, unjudged
from anymps.findings._selection import Selection, roots, select
from anymps.findings._settings import FAIL_ON, Settings, parse_fail_on, read_settings
from anymps.findings._wait_places import Ahead, WaitPlace, ahead, hurting_in, wait_places
from anymps.findings.advice import Equivalent, equivalent
from anymps.findings.rules import NOTHING_RAN, growth_per_step, nothing_ran

__all__ = [
    "FAIL_ON",
    "NOTHING_RAN",
    "RULES",
    "Ahead",
    "Equivalent",
    "Example",
    "Finding",
    "Judgement",
    "MemoryLimits",
    "Outcome",
    "Rule",
    "Selection",
    "Settings",
    "Severity",
    "WaitPlace",
    "ahead",
    "equivalent",
    "find",
    "growth_per_step",
    "hurting_in",
    "is_refusal",
    "judge",
    "memory_limits",
    "nearest_rule",
    "notes",
    "nothing_ran",
    "numbered",
    "parse_fail_on",
    "read_baseline",
    "read_settings",
    "roots",
    "rule_of",
    "select",
    "step_on_mac",
    "unjudged",
    "unused",
    "wait_places",
    "write_baseline",
]
