"""What a recording means: findings with a stable id, a place, a cost, a reason and the smallest fix. Needs no torch."""

from __future__ import annotations

from anymps.findings._baseline import read_baseline, write_baseline
from anymps.findings._catalogue import RULES, nearest_rule, rule_of
from anymps.findings._judgement import Judgement, Outcome, unused
from anymps.findings._model import Example, Finding, Rule, Severity, numbered
from anymps.findings._registry import find, is_refusal
from anymps.findings._selection import Selection, roots, select
from anymps.findings._settings import FAIL_ON, Settings, parse_fail_on, read_settings
from anymps.findings._story import Story
from anymps.findings._wait_places import WaitPlace
from anymps.findings.advice import equivalent
from anymps.findings.rules import NOTHING_RAN, nothing_ran
