"""MPS901 and MPS902: what a script times without having waited for the device, or before the device is warm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from anymps.findings._loop import MIN_STEPS, is_library, times
from anymps.findings._model import Example, Finding, Rule, Severity, at
from anymps.record import Fate, Flag, Phase, Recording, Site, Wait

UNFINISHED = Rule(
    id="MPS901",
    title="Time leaves out the GPU's work",
    severity=Severity.WARNING,
    why=("Operators on mps return as soon as they are queued: the clock measured the queueing, not the work."),
    fix="Call `torch.mps.synchronize()` before each of the two clock reads, or use `anymps bench`.",
    related_as="first read at",
    source="aten/src/ATen/mps/MPSStream.mm (torch 2.13): kernels are encoded, and committed later",
    example=Example(
        bad="""
            import time

            x = torch.rand(64, 64, device=device)
            start = time.perf_counter()
            for _ in range(10):
                y = x @ x
            print(time.perf_counter() - start)
        """,
        better={"print(time.perf_counter() - start)": "torch.mps.synchronize()\nprint(time.perf_counter() - start)"},
    ),
)

COLD = Rule(
    id="MPS902",
    title="Measured time includes compilation",
    severity=Severity.INFO,
    why=(
        "The first call with new shapes makes Metal compile kernels or MPSGraph compile a graph: about 100 us instead "
        "of 15 for one operator's graph, seconds for a first training step."
    ),
    fix="Run the same code once or twice before the first clock read, and wait: `torch.mps.synchronize()`.",
    related_as="first read at",
    source="pytorch issue #82707 (M1 Max); simonw/public-notes issue 11: 2.6 s for the first step of a GPT on an M2",
    example=Example(
        bad="""
            import time

            x = torch.rand(64, 64, device=device)
            start = time.perf_counter()
            y = x @ x
            torch.mps.synchronize()
            print(time.perf_counter() - start)
        """,
        better={"start = time.perf_counter()": "warm_up = (x @ x).cpu()\nstart = time.perf_counter()"},
    ),
)

_CLOCK: Final = r"\b(?:time|perf_counter|monotonic|default_timer|timer)(?:_ns)?\s*\(\s*\)"
_DIFFERENCE: Final = re.compile(rf"{_CLOCK}\s*-|-\s*(?:\w+\.)*{_CLOCK}")
_KEPT: Final = re.compile(rf"[\w.]+(?:\s*:\s*\w+)?\s*=\s*(?:\w+\.)*{_CLOCK}\s*(?:#.*)?")
_LOADING: Final = re.compile(r"\b\w*(?:data|load|fetch)\w*(?:\.\w+)*\s*(?:\(|[-+]?=)", re.IGNORECASE)
"""A time by this name is that of the batches: `data_time.update(time.time() - end)`."""
_DECIDES: Final = re.compile(r"(?:el)?if\b|while\b|assert\b|return\b.*[<>]")

_MANY: Final = (
    "Time many steps together: one `torch.mps.synchronize()` before the first clock read, one before the last, none in "
    "each step (MPS205). `anymps bench` does it for a script as it is."
)
_TIMEIT: Final = "End the timed code with `torch.mps.synchronize()`, or use `anymps bench`."
_MOSTLY: Final = 0.9
"""The part of the timed work that must be pending: a copy at the beginning waits too, and times nothing."""
_MOSTLY_FIRST: Final = 0.5


_IS_CLOCK: Final = f"o.name LIKE 'anymps::clock %' AND e.flags & {Flag.PAIR:d}"

_FILLERS = ("bernoulli_.float", "fill_.Scalar", "normal_", "random_", "uniform_", "zero_")
_FILLS = "', '".join(f"aten::{name}" for name in _FILLERS)
# Work is counted up over all threads, as backward runs on one of its own, without what only fills a new tensor and
# without what prepares a batch, as a time that holds nothing else is that of the loading. A
# wait is taken at its end.
_READS = f"""
WITH timed AS (
  SELECT e.start_ns + e.duration_ns * (e.wait <> 0) AS time, e.id, e.thread, e.site, e.wait, {_IS_CLOCK} AS clock,
    s.fate = {Fate.NATIVE:d} AND NOT e.flags & {Flag.VIEW:d} AND e.wait <> {Wait.ITEM:d}
      AND e.phase NOT IN ({Phase.BATCH:d}, {Phase.MOVE:d})
      AND o.name NOT IN ('{_FILLS}') AS works,
    ROW_NUMBER() OVER (PARTITION BY e.signature ORDER BY e.start_ns, e.id) = 1 AS first
  FROM entries e JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator
), summed AS (
  SELECT time, id, thread, site, wait, clock, SUM(works) OVER sofar AS work, SUM(works AND first) OVER sofar AS firsts
  FROM timed WINDOW sofar AS (ORDER BY time, id)
)
SELECT clock, thread, site, work, firsts FROM summed WHERE clock OR wait ORDER BY time, id
"""


@dataclass(frozen=True)
class ClockPair:
    """Two clock reads of one thread, one after the other, and the work on mps between them.

    `intervals` is how often the two lines followed each other with work between; `work` is the number of operators on
    mps in all these intervals, `pending` the number of those for which the host had not waited at the second read, and
    `first` the number of those of a kind that had not run before.
    """

    start: Site
    end: Site
    intervals: int
    work: int
    pending: int
    first: int


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about times taken."""
    for pair in clock_pairs(recording):
        if not _is_timing(pair) or is_library(pair.end):
            continue
        related = [pair.start]
        if pair.pending >= _MOSTLY * pair.work:
            yield UNFINISHED.finding(
                pair.end,
                what=(
                    f"The clock was read {times(pair.intervals)}, and {pair.pending} of the {pair.work} operators on "
                    f"mps since {at(pair.start)} had not been waited for."
                ),
                count=pair.intervals,
                fix=_TIMEIT if _is_timeit(pair) else _MANY if pair.intervals >= MIN_STEPS else "",
                related_sites=related,
            )
        elif pair.intervals == 1 and pair.first >= _MOSTLY_FIRST * pair.work:
            yield COLD.finding(
                pair.end,
                what=(
                    f"{pair.first} of the {pair.work} operators on mps since the clock's read at {at(pair.start)} ran "
                    "for the first time."
                ),
                count=pair.intervals,
                related_sites=related,
            )


def _is_timing(pair: ClockPair) -> bool:
    """Whether the lines take the difference of the two reads; not for a time limit, and not for that of loading."""
    start, end = pair.start.source.strip(), pair.end.source.strip()
    if pair.start.file_line == pair.end.file_line or _DECIDES.match(end):
        return _is_timeit(pair)
    if _LOADING.search(end):
        return False
    return bool(_DIFFERENCE.search(end)) or bool(_KEPT.fullmatch(end) and _KEPT.fullmatch(start))


def _is_timeit(pair: ClockPair) -> bool:
    return pair.start.file_line == pair.end.file_line and "timeit" in pair.end.source


def clock_pairs(recording: Recording) -> tuple[ClockPair, ...]:
    """The pairs in the order of the run; a thread's next read ends an interval and begins another."""
    if not any(recording.stream("SELECT 1 FROM operators WHERE name LIKE 'anymps::clock %' LIMIT 1")):
        return ()
    since: dict[int, tuple[int, int, int]] = {}  # by thread: the line, the work and the firsts at its last read
    waited = 0  # the work at the last wait
    sums: dict[tuple[Site, Site], list[int]] = {}
    for clock, thread, line, work, firsts in recording.stream(_READS):
        if not clock:
            waited = work
            continue
        before = since.get(thread)
        since[thread] = (line, work, firsts)
        if before is not None and work > before[1]:
            pair = sums.setdefault((recording.site(before[0]), recording.site(line)), [0, 0, 0, 0])
            for place, part in enumerate((1, work - before[1], work - max(waited, before[1]), firsts - before[2])):
                pair[place] += part
    return tuple(ClockPair(start, end, *numbers) for (start, end), numbers in sums.items())
