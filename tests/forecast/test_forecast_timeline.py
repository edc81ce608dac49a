"""The tracks of a predicted step as they are drawn: equal parts of time, each named by what most of it goes to."""

from __future__ import annotations

import pytest

from anymps.cost import Busy, Happening, OperatorCall
from anymps.forecast._timeline import BusySpan, _joined, _queue, _strongest

CALL = OperatorCall("aten::relu", ("float32[8]",), ("float32[8]",))
HAPPENINGS = [Happening("kernel", CALL), Happening("kernel", CALL), Happening("wait", waits=True)]


@pytest.mark.parametrize(
    ("host", "spans"),
    [
        ([Busy(1, 3, "launch", 0), Busy(3, 9, "waits", 1)], [BusySpan(0, 10, "waits", 2)]),
        ([Busy(10, 12, "waits", 0), Busy(12, 38, "launch", 1)], [BusySpan(10, 40, "launch", 2)]),
        (
            [Busy(0, 18, "launch", 0), Busy(18, 35, "waits", 2)],
            [BusySpan(0, 20, "launch", 1), BusySpan(20, 40, "waits", 0)],
        ),
        (
            [Busy(1, 2, "launch", 0), Busy(31, 40, "launch", 1)],
            [BusySpan(0, 10, "launch", 1), BusySpan(30, 40, "launch", 1)],
        ),
        ([Busy(0, 40, "host code", 0)], [BusySpan(0, 40, "host code", 0)]),
        ([], []),
    ],
    ids=["in one part", "over several", "neighbours", "nothing between", "host code is no call", "empty"],
)
def test_a_part_is_named_by_most_of_its_time(host: list[Busy], spans: list[BusySpan]) -> None:
    """40 s in four parts, each with how many calls began in it."""
    assert list(_strongest(host, HAPPENINGS, 40.0, 4)) == spans


def test_what_lies_close_together_is_joined() -> None:
    """Up to the gap, and no further; the name is that of the longest time together, the number that of the calls."""
    spans = [Busy(0, 1, "launch", 0), Busy(3, 4, "waits", 1), Busy(4, 5, "waits", 1), Busy(7.5, 8, "launch", 2)]
    assert list(_joined(spans, HAPPENINGS, 2.0)) == [
        BusySpan(0, 5, "waits", 2, "aten::relu"),
        BusySpan(7.5, 8, "launch", 1),
    ]


def test_a_queue_is_drawn_by_its_highest_points() -> None:
    """A call is in it from its dispatch, or from when the device begins, until the device is done.

    Each of 400 parts of 100 s tells its first highest moment, unless nothing changes in it.
    """
    host = [Busy(9, 10, "launch", 0), Busy(10, 10.1, "launch", 1), Busy(10.1, 10.11, "launch", 2)]
    device = [Busy(10.02, 10.05, "compute", 0), Busy(10.12, 10.2, "compute", 1), Busy(60, 70, "compute", 2)]
    device += [Busy(80, 90, "copies", 7)]  # the host was not seen to launch it
    assert _queue(host, device, 100.0) == [(10.11, 2), (70, 0), (80, 1), (90, 0)]
    assert _queue([], [], 100.0) == []
