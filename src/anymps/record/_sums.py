"""Sums over all calls of a run: by operator, by line of the script, and by place for calls that meet a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from anymps._vocabulary import Direction, Fate, Flag, Phase, Wait
from anymps.record._facts import Line, Noted, Occurrence, OperatorUse, Site
from anymps.record._rows import Rows, median_of
from anymps.record.format import ON_CPU, ON_MPS


def read_operators(rows: Rows, counts: str) -> tuple[OperatorUse, ...]:
    """Calls by operator and fate, the most frequent first; `counts` is the table that counts every call."""
    found = rows(
        f"SELECT o.name, s.fate, SUM(t.count), SUM(t.duration_ns), SUM(t.moved_bytes) FROM {counts} t "
        "JOIN signatures s ON s.id = t.signature JOIN operators o ON o.id = s.operator "
        f"WHERE s.fate <> {Fate.MARK:d} GROUP BY o.name, s.fate ORDER BY 3 DESC, 1, 2"
    )
    return tuple(OperatorUse(name, Fate(fate), *numbers) for name, fate, *numbers in found)


def read_lines(rows: Rows, counts: str, site: Callable[[int], Site], fused: Iterable[Noted]) -> tuple[Line, ...]:
    """The run line by line, by file and line; what no line is known for comes last.

    `fused` notes the further lines of kernels, each beside the line at which the kernel counts.
    """
    further: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for noted in fused:
        at = noted.occurrence.site
        further.setdefault(at.file_line, set()).add(noted.other.file_line)
    found = rows(
        f"SELECT site, SUM({ON_MPS} * count), SUM({ON_CPU} * count), SUM((wait <> 0) * count), 0, "
        f"SUM(duration_ns) FROM {counts} JOIN signatures s ON s.id = signature "
        f"WHERE s.fate <> {Fate.MARK:d} GROUP BY site "
        "UNION ALL SELECT site, 0, 0, 0, COUNT(*), 0 FROM refusals GROUP BY site"
    )
    sums: dict[tuple[str, int], list[int]] = {}
    sources: dict[tuple[str, int], str] = {}
    for identity, *numbers in found:
        at = site(identity)
        place = at.file_line
        sums[place] = [a + b for a, b in zip(sums.get(place, [0] * 5), numbers, strict=True)]
        sources[place] = sources.get(place) or at.source
    return tuple(
        Line(
            *place,
            sources[place],
            on_mps,
            on_cpu,
            waits,
            refused,
            2 * on_cpu,
            duration,
            tuple(sorted(further.get(place, ()))),
        )
        for place, (on_mps, on_cpu, waits, refused, duration) in sorted(
            sums.items(), key=lambda item: (not item[0][0], item[0])
        )
    )


def read_occurrences(
    rows: Rows,
    of: str,
    condition: str,
    values: tuple[object, ...],
    complete_steps: int,
    modules: Mapping[int, str],
    site: Callable[[int], Site],
) -> tuple[Occurrence, ...]:
    """Entries `e` that fulfil `condition`, the most frequent place first.

    Their signatures `s` and operators `o` fulfil `of`, to which the `values` belong: most recordings have none that do,
    and then their entries need no look.
    """
    kinds = f"SELECT s.id FROM signatures s JOIN operators o ON o.id = s.operator WHERE {of}"
    if not rows(f"{kinds} LIMIT 1", values):
        return ()
    later = ">" if complete_steps > 1 else ">="
    by_step = (
        f"SELECT o.name AS name, s.fate AS fate, wait, direction, flags & {Flag.NON_BLOCKING:d} AS non_blocking, site, "
        "GROUP_CONCAT(DISTINCT phase) AS phases, GROUP_CONCAT(DISTINCT module) AS modules, COUNT(*) AS calls, "
        f"c.step AS complete, CASE WHEN c.step {later} f.step THEN COUNT(*) END AS in_step, "
        "SUM(duration_ns) AS duration, SUM(moved_bytes) AS moved, MIN(e.id) AS first "
        "FROM entries e JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator "
        "LEFT JOIN steps c ON c.step = e.step AND c.end_ns IS NOT NULL "
        "LEFT JOIN (SELECT MIN(step) AS step FROM steps WHERE end_ns IS NOT NULL) f "
        f"WHERE {condition} AND e.signature IN ({kinds}) GROUP BY 1, 2, 3, 4, 5, 6, e.step"
    )
    found = rows(
        "SELECT name, fate, wait, direction, non_blocking, site, GROUP_CONCAT(DISTINCT phases), "
        "GROUP_CONCAT(DISTINCT modules), SUM(calls), COUNT(complete), GROUP_CONCAT(in_step), SUM(duration), SUM(moved) "
        f"FROM ({by_step}) "
        "GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY SUM(calls) DESC, MIN(first)",
        values,
    )
    steps_after = max(complete_steps - 1, 1)
    return tuple(
        Occurrence(
            operator=operator,
            fate=Fate(fate),
            wait=Wait(wait),
            direction=Direction(direction),
            blocking=not non_blocking,
            site=site(at),
            phases=tuple(sorted(Phase(int(phase)) for phase in phases.split(","))),
            modules=tuple(sorted({modules.get(int(module), "") for module in paths.split(",")} - {""})),
            count=count,
            steps=steps,
            per_step=_per_step(in_steps, steps_after),
            duration_ns=duration,
            moved_bytes=moved,
        )
        for (
            operator, fate, wait, direction, non_blocking, at, phases, paths, count, steps, in_steps, duration, moved
        ) in found
    )  # fmt: skip


def _per_step(in_steps: str | None, number: int) -> float:
    """The median of the counts in `number` steps, given as `3,1`; the mean where half of the steps have none."""
    counts = [int(count) for count in in_steps.split(",")] if in_steps else []
    return median_of(counts, number) or sum(counts) / number
