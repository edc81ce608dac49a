"""Which calls of two runs are matched: line by line, then operator by operator, and again after a difference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anymps.compare import Call
from anymps.compare._align import Pair, aligned
from compare_traces import Tracing, sketch

Row = tuple[str, int]
"""A call: its operator and line; `nonzero/3` has a result of three numbers."""


def calls(rows: Sequence[Row]) -> list[Call]:
    """The calls of one run."""
    trace = Tracing()
    for operator, line in rows:
        name, _, size = operator.partition("/")
        trace.call(name, line, [], [sketch([1.0] * int(size or 1))])
    return trace.trace.calls


def matched(left: Sequence[Row], right: Sequence[Row]) -> list[tuple[list[int], list[int]]]:
    """The pairs, by the calls' numbers in either run."""
    pairs = aligned(calls(left), calls(right))
    return [([one.number for one in pair.left], [other.number for other in pair.right]) for pair in pairs]


A, B, C, D = ("a", 1), ("b", 2), ("c", 3), ("d", 4)
FAR = [(f"x{number}", 100 + number) for number in range(8)]
"""More calls than may lie before a single match."""


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        ([], [], []),
        ([A, B], [A, B], [([0], [0]), ([1], [1])]),
        ([A], [A, B, C], [([0], [0]), ([], [1, 2])]),
        ([A, B, C], [A], [([0], [0]), ([1, 2], [])]),
        ([D, A, B, C], [A, B, C], [([0], []), ([1], [0]), ([2], [1]), ([3], [2])]),
        ([A, B, C], [A, D, B, C], [([0], [0]), ([], [1]), ([1], [2]), ([2], [3])]),
        # The nearest place counts, not the first of one side.
        ([A, D, B, C], [A, C, B, C], [([0], [0]), ([1], [1]), ([2], [2]), ([3], [3])]),
        ([A, *FAR, B, C, D], [A, B, C, D], [([0], [0]), ([*range(1, 9)], []), ([9], [1]), ([10], [2]), ([11], [3])]),
        # Two in a row are enough where one of the runs ends with them, and one is not.
        ([A, *FAR, B, C], [A, B, C], [([0], [0]), ([*range(1, 9)], []), ([9], [1]), ([10], [2])]),
        ([A, *FAR, B, C], [A, B, D], [([0], [0]), ([*range(1, 11)], [1, 2])]),
        ([A, *FAR, B, C, A, D], [A, B, C, D, A], [([0], [0]), ([*range(1, 13)], [1, 2, 3, 4])]),
    ],
)
def test_lines(left: list[Row], right: list[Row], pairs: list[tuple[list[int], list[int]]]) -> None:
    """What only one run has is a pair with nothing on the other side, as short as can be."""
    assert matched(left, right) == pairs


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        (["mul", "add"], ["mul", "add"], [([0], [0]), ([1], [1])]),
        (["mul", "cast", "add"], ["mul", "add"], [([0], [0]), ([1], []), ([2], [1])]),
        (["addmm", "relu"], ["mm", "add", "relu"], [([0], [0, 1]), ([1], [2])]),
        (["addmm"], ["mm", "add"], [([0], [0, 1])]),
        (["mul"], ["mul", "add", "neg"], [([0], [0]), ([], [1, 2])]),
        # A size that depends on data is no other call if what follows is the same, or nothing does.
        (["mul", "nonzero/2", "sum"], ["mul", "nonzero/3", "sum"], [([0], [0]), ([1], [1]), ([2], [2])]),
        (["mul", "nonzero/2"], ["mul", "nonzero/3"], [([0], [0]), ([1], [1])]),
        (["mul/2", "neg", "abs"], ["mul/3", "mul/2", "neg", "abs"], [([], [0]), ([0], [1]), ([1], [2]), ([2], [3])]),
    ],
)
def test_calls_of_one_line(left: list[str], right: list[str], pairs: list[tuple[list[int], list[int]]]) -> None:
    """Matched by operator and shapes; one operator in pieces is one pair."""
    assert matched([(name, 7) for name in left], [(name, 7) for name in right]) == pairs


def test_forward_and_backward_of_a_line_are_two() -> None:
    """Calls that backward makes are matched with such calls alone."""
    left = Tracing().call("mul", 7).call("mul", 7, backward=True).trace.calls
    right = Tracing().call("mul", 7, backward=True).trace.calls
    assert [(len(pair.left), len(pair.right)) for pair in aligned(left, right)] == [(1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("left", "right", "is_single"),
    [([A], [A], True), ([A], [B], False), ([A, A], [A], False), ([A], [], False), ([], [], False)],
)
def test_single_calls(left: list[Row], right: list[Row], is_single: bool) -> None:
    """One call of one operator on each side."""
    assert Pair(tuple(calls(left)), tuple(calls(right))).is_single is is_single
