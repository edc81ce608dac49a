"""The results of queries about steps: their phases, their waits, and what happened when in one of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from anymps._vocabulary import Phase, Wait
from anymps.record._facts import Site


@dataclass(frozen=True)
class Step:
    """One round of the program's loop: of a training, an inference or another (see `_rounds.py`). Times in ns."""

    step: int
    start_ns: int
    end_ns: int | None

    @property
    def complete(self) -> bool:
        """Whether the step reached its end."""
        return self.end_ns is not None


@dataclass(frozen=True)
class PhaseShare:
    """One phase of a step: counts, bytes and `time_ns` in a step.

    `on_mps` counts operators in MPS kernels (copies within the device included), `views` those of them that only view
    other memory; `on_cpu` counts fallbacks, and `fallback_bytes` the bytes that they moved to the CPU and back.
    """

    phase: Phase
    on_mps: float = 0.0
    views: float = 0.0
    on_cpu: float = 0.0
    waits: float = 0.0
    bytes_to_mps: float = 0.0
    bytes_to_cpu: float = 0.0
    fallback_bytes: float = 0.0
    time_ns: float = 0.0


PHASE_NUMBERS = tuple(field.name for field in fields(PhaseShare) if field.name != "phase")
"""The names of its numbers."""


@dataclass(frozen=True)
class RareWork:
    """What few of the steps do beyond the typical one: a checkpoint, a sample, a log.

    `steps` is how many complete steps after the first do more, `every` at which interval (0: at none); the others are
    the most that one of them has beyond the typical step.
    """

    steps: int
    every: int
    on_mps: int
    on_cpu: int
    waits: int


@dataclass(frozen=True)
class StepTable:
    """The phases of a step, in the order of `Phase`.

    `median` is the typical step: each number is the median over the `averaged` complete steps after the first (of two,
    the higher), so rare work does not count; `rare` describes that. `mean` is over the same steps. `first` is the first
    step, which includes set-up and warm-up. They are empty if there was no such step. The phases share a step's wall
    clock completely: the time before an entry belongs to the phase of that entry, the time after the last one to that
    of the last.
    """

    averaged: int
    mean: tuple[PhaseShare, ...]
    median: tuple[PhaseShare, ...]
    first: tuple[PhaseShare, ...]
    rare: RareWork | None = None

    @property
    def typical(self) -> tuple[PhaseShare, ...]:
        """The typical step; the only one where there is no other; empty without any."""
        return self.median or self.first


@dataclass(frozen=True)
class StepQueue:
    """What a step queued from `queued_ns`, the end of the previous wait, to a wait from `start_ns` to `end_ns`.

    `operators`, `host_ns` and `work_ns` are as in `WaitQueue`. In `Recording.step_queues`, those of the first wait
    count from the step's start.
    """

    step: int
    queued_ns: int
    start_ns: int
    end_ns: int
    wait: Wait
    site: Site
    operators: int
    host_ns: int
    work_ns: int


@dataclass(frozen=True)
class StepSum:
    """One complete step in brief: its wall clock in ns, its waits, and its operators on the CPU and on mps."""

    step: int
    duration_ns: int
    waits: int
    on_cpu: int
    on_mps: int
