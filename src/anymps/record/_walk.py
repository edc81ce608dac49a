"""One pass through calls in the order of time: what each phase of a step has, and the queue before each wait.

In Python: SQLite's window functions take twice as long for the same, and a recording has a million calls. What decides
how a call counts comes from SQL as one number, of which a step has a few dozen, so little is done for each call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from anymps._vocabulary import Direction, Flag, Phase, Wait
from anymps.record._facts import Site
from anymps.record._rows import Rows
from anymps.record._step_facts import PHASE_NUMBERS, PhaseShare, StepQueue
from anymps.record.format import ON_CPU, ON_MPS

# In SQLite shifts and `|` bind alike. A call whose signature is missing is neither on mps nor on the CPU.
_CALLS: Final = (
    f"SELECT step, (COALESCE({ON_MPS}, 0) << 33) | (COALESCE({ON_CPU}, 0) << 32) | (phase << 24) | (wait << 16) | "
    "(direction << 8) | flags, start_ns, duration_ns, moved_bytes, (wait <> 0) * site "
    "FROM entries e LEFT JOIN signatures s ON s.id = e.signature WHERE {within} ORDER BY start_ns, e.id"
)
_ON_MPS: Final = 1 << 33
_ON_CPU: Final = 1 << 32
_WAIT: Final = 0xFF0000
_VIEW, _PAIR = int(Flag.VIEW), int(Flag.PAIR)
_KERNEL: Final = _ON_MPS | _VIEW  # of these two, one that is queued has the first only


@dataclass(frozen=True)
class Walk:
    """`shares` are the rows of the step table, by step and phase, of complete steps."""

    shares: dict[int, dict[Phase, PhaseShare]]
    last_phases: dict[int, Phase]
    waits: tuple[StepQueue, ...]

    def fallbacks(self, step: int) -> int:
        """How many calls of a complete step ran on the CPU."""
        return int(sum(share.on_cpu for share in self.shares[step].values()))

    def on_mps(self, step: int) -> int:
        """How many operators of a complete step ran in MPS kernels."""
        return int(sum(share.on_mps for share in self.shares[step].values()))

    def waited(self, step: int) -> int:
        """How many calls of a complete step waited."""
        return int(sum(share.waits for share in self.shares[step].values()))


@dataclass(slots=True)
class _Sums:
    """What is added up of one step. `clock` is the latest end of a call seen so far, kept inside the step (ns)."""

    clock: int = 0
    end: int = 0
    last_phase: int | None = None
    counts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # by kind: calls
    moved: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # by kind: bytes
    times: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # by phase


def walk(
    rows: Rows,
    stream: Callable[[str], Iterable[tuple[Any, ...]]],
    site: Callable[[int], Site],
    within: str = "TRUE",
    since: int = 0,
) -> Walk:
    """Walk through a recording; `rows` runs a query, `stream` gives the rows of one as they are read.

    `within` is a condition on an entry `e`: only such calls are walked through. The first queue begins at `since`.
    """
    complete = rows("SELECT step, start_ns, end_ns FROM steps WHERE end_ns IS NOT NULL")
    steps = {step: _Sums(clock=start, end=end) for step, start, end in complete}
    waits: list[StepQueue] = []
    operators = work = 0
    at, sums = None, _Sums()
    for step, kind, start, length, size, line in stream(_CALLS.format(within=within)):
        if step != at:
            at, sums = step, steps.get(step) or steps.setdefault(step, _Sums())
        sums.counts[kind] += 1
        end = start + length
        if kind & _WAIT:
            host = max(start - since - work, 0)
            waits.append(StepQueue(step, since, start, end, Wait(kind >> 16 & 0xFF), site(line), operators, host, work))
            operators = work = 0
            since = max(end, since)
        elif kind & _KERNEL == _ON_MPS:
            operators += 1
            work += length
        if size:
            sums.moved[kind] += size
        if kind & _PAIR:
            continue
        sums.last_phase = phase = kind >> 24 & 0xFF
        # Calls may overlap (a fallback holds its copies, autograd has a thread of its own): one adds what lies between
        # the latest end seen so far and its own end, both kept inside the step.
        until = end if end < sums.end else sums.end
        if until > sums.clock:
            sums.times[phase] += until - sums.clock
            sums.clock = until
    return Walk(
        shares={step: _shares(steps[step]) for step, _, _ in complete},
        last_phases={step: Phase(found.last_phase) for step, found in steps.items() if found.last_phase is not None},
        waits=tuple(waits),
    )


def _shares(sums: _Sums) -> dict[Phase, PhaseShare]:
    numbers = {phase: dict.fromkeys(PHASE_NUMBERS, 0.0) for phase in Phase}
    for kind, count in sums.counts.items():
        if kind & _PAIR:
            continue
        share = numbers[Phase(kind >> 24 & 0xFF)]
        direction, size = kind >> 8 & 0xFF, sums.moved.get(kind, 0)
        if kind & _ON_MPS:
            share["on_mps"] += count
            if kind & _VIEW:
                share["views"] += count
        if kind & _ON_CPU:
            share["on_cpu"] += count
        if kind & _WAIT:
            share["waits"] += count
        if direction == Direction.CPU_TO_MPS:
            share["bytes_to_mps"] += size
        elif direction == Direction.MPS_TO_CPU:
            share["bytes_to_cpu"] += size
        elif direction == Direction.NONE and kind & _ON_CPU:  # copies of a fallback are part of its own entry
            share["fallback_bytes"] += size
    for number, time in sums.times.items():
        numbers[Phase(number)]["time_ns"] += time
    return {phase: PhaseShare(phase, **share) for phase, share in numbers.items()}
