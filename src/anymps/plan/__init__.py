"""What a run would cost: its memory on every Mac, before the first real step."""

from __future__ import annotations

from anymps.plan._batches import KNEE, Batches, BatchTime, Growth, batch_times
from anymps.plan._choice import Choice, Own
from anymps.plan._fixes import Fix, FixKind, first_fixes, growth_a_step
from anymps.plan._measure import Assumption, Dropped, Measured, end_all, measure, run_apart
from anymps.plan._other_allocations import Kind, OtherAllocations, other_allocations
from anymps.plan._plan import Change, NoLarger, Plan, Recovery, Row, make_plan, own_mac, representative
from anymps.plan._scenario import WORDS, Scenario, parse_scenario
from anymps.plan._step_counter import StepCounter
from anymps.plan._times import MacTime, step_times
from anymps.plan._trace import COMFORT, Outcome, Stretch, Trace, Verdict
