"""In which processes of a joined recording a line did something."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from anymps._vocabulary import Fate
from anymps.record._facts import Site
from anymps.record._rows import Rows

_MARK = int(Fate.MARK)


@dataclass(frozen=True)
class LinesByProcess:
    """What happened at the lines of each process, by file and line; processes are numbers of `Recording.parts`.

    `called` is for any call, buffer or mark, `waited` for waits of the host, `refused` for calls that raised and for
    the lines that made what was refused. `steps` counts the complete steps of each process. `working` are the
    processes in which anything ran on mps, or was refused there: notes of habits alone are nothing of that. `whole` is
    false where some calls were only counted: then a line may have run in more processes than are listed.
    """

    called: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    waited: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    refused: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    steps: Mapping[int, int] = field(default_factory=dict)
    working: frozenset[int] = frozenset()
    whole: bool = True

    def per_step_there(self, per_step: float, processes: Collection[int]) -> float:
        """How often a step of these processes does what only they do; `per_step` is for the steps of all.

        That is of the typical step, and so of theirs, where they make more than half of all steps, else the mean. The
        first step of all is not in it.
        """
        after_first = dict(self.steps)
        if after_first:
            after_first[min(after_first)] -= 1
        own, of_all = sum(after_first.get(number, 0) for number in processes), sum(after_first.values())
        return per_step * of_all / own if 0 < 2 * own <= of_all else per_step


def read_lines_by_process(
    rows: Rows, sites: Mapping[int, Site], begins: Sequence[int], *, whole: bool
) -> LinesByProcess:
    """One pass over entries, buffers and refusals; `begins` are where the processes begin on the clock of the whole."""
    calls = rows(
        f"SELECT DISTINCT {_process('e.start_ns', begins)}, e.site, e.wait <> 0, s.fate <> {_MARK} "
        "FROM entries e JOIN signatures s ON s.id = e.signature"
    )
    buffers = rows(f"SELECT DISTINCT {_process('born_ns', begins)}, site FROM allocations WHERE born > 0")
    refusals = rows(
        f"SELECT DISTINCT {_process('e.start_ns', begins)}, r.site, r.origin FROM refusals r "
        "JOIN entries e ON e.id = r.entry"
    )
    called = [(number, site) for number, site, *_ in calls]
    ran = {number for number, _, _, is_call in calls if is_call}
    raised = [(number, site) for number, *both in refusals for site in both]
    steps = rows(f"SELECT {_process('start_ns', begins)}, COUNT(*) FROM steps WHERE end_ns NOT NULL GROUP BY 1")
    return LinesByProcess(
        called=_by_line([*called, *buffers, *raised], sites),
        waited=_by_line([(number, site) for number, site, waits, _ in calls if waits], sites),
        refused=_by_line(raised, sites),
        steps=dict(steps),
        working=frozenset(ran | {number for number, _ in [*buffers, *raised]}),
        whole=whole,
    )


def _process(time: str, begins: Sequence[int], first: int = 0) -> str:
    """SQL for the process in which a time lies, with as few comparisons as halving takes."""
    if len(begins) <= 1:
        return f"{first:d}"
    half = len(begins) // 2
    before, after = _process(time, begins[:half], first), _process(time, begins[half:], first + half)
    return f"CASE WHEN {time} < {begins[half]:d} THEN {before} ELSE {after} END"


def _by_line(found: Sequence[tuple[int, int]], sites: Mapping[int, Site]) -> dict[tuple[str, int], frozenset[int]]:
    lines: dict[tuple[str, int], set[int]] = {}
    for number, identity in found:
        site = sites.get(identity)
        if site is not None and site.known:
            lines.setdefault(site.file_line, set()).add(number)
    return {line: frozenset(numbers) for line, numbers in lines.items()}
