"""What a step is: the loop of a run, found among the rounds that were recorded.

A round is something that a loop does once or a few times in each pass: an optimizer's step, a backward, a module's
call, a batch. A recording holds them in order. This module decides which of them mark the steps, when all are known.

- Where whoever records called each step itself, as `anymps bench` does with a function, these are the steps, and what
  comes between two of them is in none.
- With an optimizer a step ends with it. Of several that take turns (a GAN, an actor and its critic, one for each group
  of parameters) the last one of a round ends it; those that train one after the other have steps of their own.
- A backward without an optimizer belongs to a training that updates by hand; without a backward, modules that are
  called again and again are an inference. Such a round begins where the loop turns back: at the first line that lies
  before that of the backward or call, in the same function.
- Where there is none of these, lines that come again and again are the rounds.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from anymps._vocabulary import Fate, Flag, Phase, RoundKind
from anymps.record._rows import Rows
from anymps.record.loop import Round, cycles

_LEAST: Final = 2  # rounds of a loop without an optimizer: fewer do not repeat
_OWN: Final = 3  # steps of a loop that is judged by itself
_ALWAYS: Final = -(1 << 62)  # before all times

_OUTSIDE: Final = f"e.module = 0 AND NOT e.flags & {Flag.AUTOGRAD_THREAD | Flag.PAIR:d}"
_TURNS: Final = f"""
SELECT e.start_ns FROM entries e JOIN sites s ON s.id = e.site
WHERE {_OUTSIDE} AND s.file = ? AND s.function = ? AND s.line < ?
UNION SELECT r.start_ns FROM rounds r JOIN sites s ON s.id = r.site WHERE s.file = ? AND s.function = ? AND s.line < ?
ORDER BY 1
"""
_LINES: Final = f"""
SELECT s.file, s.line, e.site, e.start_ns, e.start_ns + e.duration_ns FROM entries e JOIN sites s ON s.id = e.site
JOIN signatures g ON g.id = e.signature
WHERE {_OUTSIDE} AND s.id > 0 AND g.fate <> {Fate.MARK:d}
  AND e.thread = (SELECT thread FROM entries GROUP BY thread ORDER BY COUNT(*) DESC LIMIT 1)
ORDER BY e.start_ns, e.id
"""

_AT: Final = "(SELECT b.number FROM bounds b WHERE b.since <= {time} ORDER BY b.since DESC LIMIT 1)"


def settle_steps(connection: sqlite3.Connection) -> None:
    """Put the steps that follow from the rounds of a recording in the place of those that it was written with.

    The entries are rows by now. Where no rounds were watched, in a test suite, everything stays as it is; so it does
    in a joined recording, as the steps of each process were settled before. Of a part of a run the first step begins
    where the part does, not with the run.
    """
    if connection.execute("SELECT 1 FROM meta WHERE key = 'parts'").fetchall():
        return
    _settle(connection)
    connection.execute(
        "UPDATE steps SET start_ns = MAX(start_ns, (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'begin_ns')) "
        "WHERE EXISTS (SELECT 1 FROM meta WHERE key = 'begin_ns')"
    )


def loop_begins(rows: Rows) -> list[int]:
    """When each loop begins of a run that trains several times, one after the other; empty where it has one loop."""
    rounds = [Round(*row) for row in rows("SELECT kind, key, site, start_ns, end_ns FROM rounds ORDER BY end_ns")]
    found = cycles(_of_kind(rounds, RoundKind.OPTIMIZER))
    ends = sorted([anchor.end_ns for anchor in anchors] for anchors in found if len(anchors) >= _OWN)
    if len(ends) < 2 or any(before[-1] > after[0] for before, after in pairwise(ends)):
        return []
    # What follows a loop's last step, such as a log, is still its own, up to the next call of a module.
    starts = sorted(round_.start_ns for round_ in rounds)
    return [0, *(starts[bisect_right(starts, before[-1])] for before in ends[:-1])]


def _settle(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT kind, key, site, start_ns, end_ns FROM rounds ORDER BY end_ns")
    rounds = [Round(*row) for row in rows]
    if not rounds and not connection.execute("SELECT 1 FROM meta WHERE key = 'rounds' AND value = 'true'").fetchall():
        return
    if called := _of_kind(rounds, RoundKind.CALLED):
        _renumber(connection, [round_.end_ns for round_ in called])
        starts = [(round_.start_ns, step) for step, round_ in enumerate(called)]
        connection.executemany("UPDATE steps SET start_ns = ? WHERE step = ?", starts)
    elif optimizers := _of_kind(rounds, RoundKind.OPTIMIZER):
        ends = sorted(anchor.end_ns for anchors in cycles(optimizers) for anchor in anchors)
        # As many ends as optimizers' steps: the steps that the run was written with are these already.
        if len(ends) < len(optimizers):
            _renumber(connection, ends)
    else:
        _settle_without_optimizer(connection, rounds)


def _settle_without_optimizer(connection: sqlite3.Connection, rounds: Sequence[Round]) -> None:
    """A backward comes once a round, else a module's call, a batch, or what a line does."""
    backwards = _of_kind(rounds, RoundKind.BACKWARD)
    if loop := _loops(backwards):
        if turns := _round_starts(connection, rounds, loop):
            _renumber(connection, turns)
            _find_forward(connection, turns, [round_.start_ns for round_ in backwards])
        return
    if loop := _loops(_of_kind(rounds, RoundKind.MODULE)):
        turns = _round_starts(connection, rounds, loop)
    elif loop := _loops(_of_kind(rounds, RoundKind.BATCH)):
        turns = sorted({anchor.start_ns for anchors in loop for anchor in anchors[1:]})
    else:
        turns = _round_starts(connection, rounds, _loops(_lines(connection)))
    if turns:
        _renumber(connection, turns)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('loop', '\"inference\"')")


def _of_kind(rounds: Sequence[Round], kind: RoundKind) -> list[Round]:
    return [round_ for round_ in rounds if round_.kind == kind]


def _loops(rounds: Iterable[Round]) -> list[list[Round]]:
    return [anchors for anchors in cycles(list(rounds)) if len(anchors) >= _LEAST]


def _round_starts(
    connection: sqlite3.Connection, rounds: Sequence[Round], loops: Sequence[Sequence[Round]]
) -> list[int]:
    """When each round of these loops but the first one begins."""
    found: set[int] = set()
    starts = sorted(round_.start_ns for round_ in rounds)
    for number, anchors in enumerate(loops):
        (place,) = connection.execute(
            "SELECT file, function, line FROM sites WHERE id = ?", (anchors[0].site,)
        ).fetchall() or [("", "", 0)]
        back = [time for (time,) in connection.execute(_TURNS, place * 2)]
        if number:
            found.add(anchors[0].start_ns)
        for anchor, following in zip(anchors, [*anchors[1:], None], strict=True):
            at = bisect_left(back, anchor.end_ns)
            if at < len(back) and (following is None or back[at] <= following.start_ns):
                found.add(back[at])
            elif following is not None:
                # The loop is of one line, or its other lines are in other functions.
                at = bisect_left(starts, anchor.end_ns)
                other = min(starts[at] if at < len(starts) else following.start_ns, following.start_ns)
                alone = anchor.kind == RoundKind.BACKWARD and other == following.start_ns
                found.add(anchor.end_ns if alone else other)
    return sorted(found)


def _lines(connection: sqlite3.Connection) -> list[Round]:
    """The program's lines outside of modules, one after the other, as if each were a round."""
    found: list[Round] = []
    numbers: dict[tuple[str, int], int] = {}
    for file, line, site, start, end in connection.execute(_LINES):
        number = numbers.setdefault((file, line), site)
        if found and found[-1].site == number:
            found[-1] = found[-1]._replace(end_ns=end)
        else:
            found.append(Round(0, 0, number, start, end))
    return found


def _renumber(connection: sqlite3.Connection, ends: Sequence[int]) -> None:
    """Make steps that end at these times, and give entries and buffers their numbers."""
    starts = (0, *ends)
    connection.execute("DELETE FROM steps")
    connection.executemany(
        "INSERT INTO steps VALUES (?, ?, ?)",
        [(step, start, end) for step, (start, end) in enumerate(zip(starts, ends, strict=False))],
    )
    _bound(connection, [(_ALWAYS, 0), *((end, step) for step, end in enumerate(ends, start=1))])
    connection.execute(f"UPDATE entries SET step = {_AT.format(time='start_ns')}")
    connection.execute(
        f"UPDATE allocations SET step = {_AT.format(time='born_ns')}, "
        f"died_step = CASE WHEN died THEN {_AT.format(time='died_ns')} ELSE died_step END"
    )
    connection.execute("DROP TABLE bounds")


def _find_forward(connection: sqlite3.Connection, turns: Sequence[int], backwards: Sequence[int]) -> None:
    """Say of what was recorded as coming after a backward that it is forward, where it belongs to the next one.

    While it records, only an optimizer's step tells where the next round begins.
    """
    _bound(connection, [(_ALWAYS, 1), *((time, 0) for time in backwards), *((time, 1) for time in turns)])
    columns = (("entries", "start_ns", "phase"), ("allocations", "born_ns", "phase"))
    for table, time, phase in (*columns, ("allocations", "died_ns", "died_phase")):
        outside = "" if phase == "died_phase" else "AND module = 0 "
        connection.execute(
            f"UPDATE {table} SET {phase} = {Phase.FORWARD:d} "
            f"WHERE {phase} = {Phase.OTHER:d} {outside}AND {_AT.format(time=time)}"
        )
    connection.execute("DROP TABLE bounds")


def _bound(connection: sqlite3.Connection, bounds: Sequence[tuple[int, int]]) -> None:
    connection.execute("CREATE TEMP TABLE bounds (since INTEGER PRIMARY KEY, number INTEGER NOT NULL)")
    connection.executemany("INSERT OR REPLACE INTO bounds VALUES (?, ?)", bounds)
