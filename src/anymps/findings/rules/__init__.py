"""The rules: one file for a rule or a few closely related ones, named by its first ID and its topic.

A file binds its rules, each with its documentation and example, and has `find`. No list names files or rules.
"""

from __future__ import annotations

from typing import Final

from anymps.findings._catalogue import families
from anymps.findings.rules._known_faults import fault_of_mark, faults_met
from anymps.findings.rules._mps002_whole_run import NOTHING_RAN, nothing_ran
from anymps.findings.rules._mps108_cpu_only import rule_of_ending
from anymps.findings.rules._mps407_cuda import asked_for_cuda
from anymps.findings.rules._mps505_memory_growth import growth_per_step
from anymps.findings.rules._mps806_processes import ended_by_sharing

FAMILIES: Final = families(__name__, __path__)
"""The files beside this one."""
