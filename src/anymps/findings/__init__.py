"""What a recording means: findings with a stable id, a place, a cost, a reason and the smallest fix. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.findings._costs import kept_graphs
    from anymps.findings._gpu_profile import GpuProfile, ProfiledOperation, read_operations
    from anymps.findings._judgement import Judgement, Outcome
    from anymps.findings._model import Example, Finding, Rule, numbered
    from anymps.findings._registry import RULES, find, is_refusal, nearest_rule
    from anymps.findings._selection import Selection, read_baseline, roots, select, write_baseline
    from anymps.findings._settings import FAIL_ON, Settings, parse_fail_on, read_settings
    from anymps.findings._severity import Severity
    from anymps.findings._story import Story
    from anymps.findings._wait_places import WaitPlace
    from anymps.findings.advice import equivalent
    from anymps.findings.rules import NOTHING_RAN, fault_of_mark, faults_met, nothing_ran

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
