"""Where the host waits, and the queue before each wait: how much had been queued since the wait before it.

Waits always keep their detail, so places and counts hold the whole run. What was queued is known only where every call
kept its detail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anymps._vocabulary import Phase, Wait
from anymps.record._facts import Site, WaitQueue
from anymps.record._rows import Rows, interval, last_detailed, median_of, read_walls
from anymps.record._step_facts import StepQueue
from anymps.record._walk import Walk

_Place = tuple[str, int, Wait]
"""File, line and kind of wait."""

_PLACES = "SELECT id, MIN(id) OVER (PARTITION BY file, line) AS place FROM sites"

_COUNTS = f"""
WITH places AS ({_PLACES})
SELECT p.place, e.wait, COUNT(*), COUNT(DISTINCT c.step), SUM(c.step {{later}} {{first}}), MIN(e.step), MAX(e.step),
  GROUP_CONCAT(DISTINCT e.phase), SUM(e.moved_bytes)
FROM entries e JOIN places p ON p.id = e.site LEFT JOIN steps c ON c.step = e.step AND c.end_ns IS NOT NULL
WHERE e.wait <> 0 GROUP BY 1, 2 ORDER BY COUNT(*) DESC, MIN(e.id)
"""


def read_queues(
    rows: Rows, walk: Walk, site: Callable[[int], Site], *, only_detailed: bool, begins: Sequence[int]
) -> tuple[WaitQueue, ...]:
    """Every place where the host waited, by line and kind of wait, the most frequent first.

    `begins` is where further processes begin on the clock: their queues start empty.
    """
    walls = list(read_walls(rows, only_detailed=False))
    first = walls[0] if walls else -1
    counted = rows(_COUNTS.format(first=first, later=">" if len(walls) > 1 else ">="))
    if not counted:
        return ()
    starts = [wait.start_ns for wait in walk.waits]
    foreign = {bisect_left(starts, begin) for begin in begins}
    own = [wait for number, wait in enumerate(walk.waits) if number not in foreign]
    complete = set(walls)
    visits: dict[_Place, Counter[int]] = {}
    for each in walk.waits:
        if each.step in complete:
            visits.setdefault((*each.site.file_line, each.wait), Counter())[each.step] += 1
    measured = _measured(own, first, last_detailed(rows) if only_detailed else None)
    queues = []
    for line, wait, count, steps, in_steps, since, until, phases, moved in counted:
        place = *site(line).file_line, Wait(wait)
        queue = WaitQueue(
            site=site(line),
            wait=Wait(wait),
            phases=tuple(sorted(Phase(int(phase)) for phase in phases.split(","))),
            count=count,
            steps=steps,
            # What an odd step adds, a checkpoint or a sample, is none of the others'.
            per_step=_typical(visits.get(place, {}), walls[1:] or walls) or (in_steps or 0) / max(len(walls) - 1, 1),
            first_step=since,
            last_step=until,
            moved_bytes=moved,
            every=interval(visits.get(place, ())),
        )
        if place in measured:
            number, median, most, host, work = measured[place]
            queue = replace(queue, measured=number, operators=median, most_operators=most, host_ns=host, work_ns=work)
        queues.append(queue)
    return tuple(queues)


def _typical(waits: Mapping[int, int], steps: Sequence[int]) -> float:
    """The median of what each of these steps waits; of two, the higher."""
    return median_of([waits[step] for step in steps if waits.get(step)], len(steps))


def _measured(
    waits: Sequence[StepQueue], first: int, until: int | None
) -> dict[_Place, tuple[int, int, int, float, float]]:
    """By place and kind of wait: how many waits before step `until`, median and most operators, mean times (ns).

    The first step is left out of a place that later ones have too, as in the step table.
    """
    groups: dict[_Place, list[StepQueue]] = {}
    for wait in waits:
        groups.setdefault((*wait.site.file_line, wait.wait), []).append(wait)
    found = {}
    for key, alike in groups.items():
        only_first = max(wait.step for wait in alike) == first
        known = [wait for wait in alike if (until is None or wait.step < until) and (wait.step != first or only_first)]
        if known:
            queues = sorted(wait.operators for wait in known)
            host = sum(wait.host_ns for wait in known) / len(known)
            work = sum(wait.work_ns for wait in known) / len(known)
            found[key] = (len(known), queues[(len(known) - 1) // 2], queues[-1], host, work)
    return found
