"""The usual time of a place in a program, from several steps that were disturbed in different ways."""

from __future__ import annotations

import pytest

from anymps.cost import Happening
from anymps.forecast._gaps import Seen, Usual, usual

MS = 1e-3


def step(gap: float, lost: float = 0.0) -> Seen:
    """One call after so many ms of own code, in which the thread had no core for `lost` ms more."""
    return Seen([Happening("kernel", None, gap * MS)], ["call"], {0: (lost * MS, 0.0)} if lost else {})


def taken(*steps: Seen) -> Usual:
    """The usual step of these."""
    return usual(steps[0], steps[1:])


def seconds(found: Usual) -> float:
    """The own code in it, in ms."""
    return found.happenings[0].host_code / MS


def test_what_was_interrupted_counts_where_little_else_is_known() -> None:
    """Eleven steps on a busy machine: the one in the middle counts, and what all of them lost is told."""
    ran = [8.2, 8.1, 1.4, 7.7, 8.0, 7.7, 8.0, 7.9, 7.8, 7.8, 8.1]
    found = taken(*(step(gap, 40.0) for gap in ran))
    assert seconds(found) == pytest.approx(7.9)
    assert found.lost == pytest.approx(40.0 * MS)


def test_a_busy_and_a_quiet_run_of_the_same_code() -> None:
    """Within the aim of 15 %, though half of what the clock shows was lost, and not always told rightly."""
    quiet = taken(*(step(gap) for gap in (4.4, 4.5, 4.3, 4.6, 4.4, 4.3, 4.5, 4.4)))
    busy = taken(*(step(gap, lost) for gap, lost in zip(
        (4.6, 4.5, 8.3, 4.7, 2.9, 4.6, 4.9, 4.5), (12.0, 8.0, 0.0, 4.0, 13.6, 12.0, 8.0, 4.0), strict=True
    )))  # fmt: skip
    assert seconds(busy) == pytest.approx(seconds(quiet), rel=0.15)
