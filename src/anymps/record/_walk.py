"""One walk through all calls in the order of time: what each phase of a step holds, and the queue before each wait.

In Python: SQLite's window functions take twice as long for the same, and a recording has a million calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from anymps.record._step_table import Rows
from anymps.record._vocabulary import Direction, Fate, Flag, Phase, Wait

# What decides how a call counts, in one number: most calls share a few hundred of them. In SQLite shifts and `|` bind
# alike.
_CALLS: Final = (
    "SELECT step, (signature << 32) | (phase << 24) | (wait << 16) | (direction << 8) | flags, start_ns, "
    "duration_ns, moved_bytes FROM entries ORDER BY start_ns, id"
)
_WAITS: Final = "SELECT site, wait FROM entries WHERE wait <> 0 ORDER BY start_ns, id"
_WAIT: Final = 0xFF0000
_PAIR: Final = int(Flag.PAIR)


@dataclass(frozen=True)
class WaitAt:
    """One wait: how many operators had been queued since the one before, and the time in and around them (ns)."""

    site: int
    wait: int
    step: int
    start_ns: int
    operators: int
    work_ns: int
    elapsed_ns: int


@dataclass(frozen=True)
class Walk:
    """`shares` are the eight numbers of a phase's row in the step table, by step and phase, of complete steps."""

    shares: dict[int, dict[Phase, list[float]]]
    last_phases: dict[int, Phase]
    waits: tuple[WaitAt, ...]


def walk(rows: Rows, stream: Callable[[str], Iterable[tuple[Any, ...]]]) -> Walk:
    """Walk through a recording; `rows` runs a query, `stream` gives the rows of one as they are read."""
    fates: dict[int, int] = dict(rows("SELECT id, fate FROM signatures"))
    bounds = {step: (start, end) for step, start, end in rows("SELECT * FROM steps WHERE end_ns IS NOT NULL")}
    kinds: dict[int, dict[int, int]] = {}  # by step and kind: how often
    moved: dict[int, dict[int, int]] = {}  # the same: bytes
    times: dict[int, dict[int, int]] = {}  # by step and phase
    clocks = {step: start for step, (start, _) in bounds.items()}
    last: dict[int, int] = {}
    queued: dict[int, bool] = {}
    waits: list[tuple[int, int, int, int, int]] = []
    operators = work = before = 0
    for step, kind, start, length, size in stream(_CALLS):
        counts = kinds.get(step)
        if counts is None:
            counts, moved[step], times[step] = {}, {}, {}
            kinds[step] = counts
        counts[kind] = counts.get(kind, 0) + 1
        end = start + length
        if kind & _WAIT:
            waits.append((step, start, operators, work, max(start - before, 0)))
            operators = work = 0
            before = end
        else:
            queues = queued.get(kind)
            if queues is None:
                fate, direction = fates.get(kind >> 32, -1), kind >> 8 & 0xFF
                queues = queued[kind] = _on_mps(fate, direction) and not kind & Flag.VIEW
            if queues:
                operators += 1
                work += length
        if size:
            moved[step][kind] = moved[step].get(kind, 0) + size
        if kind & _PAIR:
            continue
        last[step] = phase = kind >> 24 & 0xFF
        # Calls may overlap (a fallback holds its copies, autograd has a thread of its own): one adds what lies between
        # the latest end seen so far and its own end, both kept inside the step.
        if step in bounds:
            until, clock = min(end, bounds[step][1]), clocks[step]
            if until > clock:
                times[step][phase] = times[step].get(phase, 0) + until - clock
                clocks[step] = until
    places = rows(_WAITS)
    return Walk(
        shares={step: _shares(kinds.get(step, {}), moved.get(step, {}), times.get(step, {}), fates) for step in bounds},
        last_phases={step: Phase(phase) for step, phase in last.items()},
        waits=tuple(WaitAt(site, wait, *told) for (site, wait), told in zip(places, waits, strict=True)),
    )


def _on_mps(fate: int, direction: int) -> bool:
    return fate == Fate.NATIVE or (fate == Fate.COPY and direction == Direction.MPS_TO_MPS)


def _shares(
    counts: dict[int, int], moved: dict[int, int], times: dict[int, int], fates: dict[int, int]
) -> dict[Phase, list[float]]:
    """A step's rows, in the order of the fields of `PhaseShare`."""
    shares = {phase: [0.0] * 8 for phase in Phase}
    for kind, count in counts.items():
        if kind & _PAIR:
            continue
        row = shares[Phase(kind >> 24 & 0xFF)]
        fate, direction, size = fates.get(kind >> 32, -1), kind >> 8 & 0xFF, moved.get(kind, 0)
        on_cpu = fate in (Fate.FALLBACK, Fate.ALWAYS_FALLBACK)
        if _on_mps(fate, direction):
            row[0] += count
            row[1] += count if kind & Flag.VIEW else 0
        row[2] += count if on_cpu else 0
        row[3] += count if kind >> 16 & 0xFF != Wait.NONE else 0
        row[4] += size if direction == Direction.CPU_TO_MPS else 0
        row[5] += size if direction == Direction.MPS_TO_CPU else 0
        row[6] += size if on_cpu and direction == Direction.NONE else 0
    for number, time in times.items():
        shares[Phase(number)][7] += time
    return shares
