"""Plans: what a run needs on every Mac, before the first real step."""

from __future__ import annotations

from anymps.plan._fixes import Fix, FixKind, first_fixes
from anymps.plan._measure import Assumption, Dropped, Measured, measure
from anymps.plan._plan import NoLarger, Plan, Row, TriedChange, make_plan, representative
from anymps.plan._scenario import RANK, WORDS, Scenario, parse_scenario
from anymps.plan._times import MacTime, mac_time, step_times
from anymps.plan._trace import (
    LARGEST_BATCH,
    Kind,
    MacOutcome,
    OtherAllocations,
    Stretch,
    Trace,
    Verdict,
    other_allocations,
)
