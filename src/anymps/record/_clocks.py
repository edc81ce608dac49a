"""Clock reads of a recorded program, and the device's work between two of them."""

from __future__ import annotations

from collections.abc import Callable

from anymps._vocabulary import Fate, Flag, Phase, Wait
from anymps.record._facts import ClockPair, Site
from anymps.record._rows import Rows

_CLOCK = f"o.name LIKE 'anymps::clock %' AND e.flags & {Flag.PAIR:d}"
_ANY = f"SELECT 1 FROM operators o JOIN signatures s ON s.operator = o.id WHERE s.fate = {Fate.MARK:d} AND o.name LIKE "

_FILLERS = ("bernoulli_.float", "fill_.Scalar", "normal_", "random_", "uniform_", "zero_")
_FILLS = "', '".join(f"aten::{name}" for name in _FILLERS)
# Work is counted up over all threads, as backward runs on one of its own, without what only fills a new tensor and
# without what prepares a batch, as a time that holds nothing else is that of the loading. A
# wait is taken at its end.
_READS = f"""
WITH timed AS (
  SELECT e.start_ns + e.duration_ns * (e.wait <> 0) AS time, e.id, e.thread, e.site, e.wait, {_CLOCK} AS clock,
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


def read_clock_pairs(rows: Rows, site: Callable[[int], Site]) -> tuple[ClockPair, ...]:
    """Read them through `rows`, which runs a query; a thread's next read ends an interval and begins another."""
    if not rows(f"{_ANY} 'anymps::clock %' LIMIT 1"):
        return ()
    since: dict[int, tuple[int, int, int]] = {}  # by thread: the line, the work and the firsts at its last read
    waited = 0  # the work at the last wait
    sums: dict[tuple[Site, Site], list[int]] = {}
    for clock, thread, line, work, firsts in rows(_READS):
        if not clock:
            waited = work
            continue
        before = since.get(thread)
        since[thread] = (line, work, firsts)
        if before is not None and work > before[1]:
            pair = sums.setdefault((site(before[0]), site(line)), [0, 0, 0, 0])
            for place, part in enumerate((1, work - before[1], work - max(waited, before[1]), firsts - before[2])):
                pair[place] += part
    return tuple(ClockPair(start, end, *numbers) for (start, end), numbers in sums.items())
