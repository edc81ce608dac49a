"""How far a recording is while the run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anymps.record.format import StepRow


@dataclass(frozen=True)
class Progress:
    """How far a run is. `steps` counts all that its optimizers made, `recorded` those that are in the recording.

    `step_ns` is the time of one of the steps that ended last; 0 before the first has ended. `waits` are those of all
    recorded steps, `allocated` and `peak` bytes of the device. `begun` and `over` tell of a part of a run whether its
    first and its last step have come; of a whole run they are true and false.
    """

    steps: int
    recorded: int
    waits: int
    step_ns: float
    allocated: int
    peak: int
    begun: bool
    over: bool


class StepClock:
    """Counts steps as they come off the tape, and keeps the time of the last ones."""

    def __init__(self) -> None:
        self.count = 0
        self.step_ns = 0.0

    def add(self, rows: Sequence[StepRow], begin_ns: int = 0) -> None:
        """Steps that have ended; none of them began before `begin_ns`."""
        start, end = (max(rows[0][1], begin_ns), rows[-1][2]) if rows else (0, None)
        if end is not None:
            self.count += len(rows)
            self.step_ns = (end - start) / len(rows)
