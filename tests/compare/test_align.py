"""Which calls of two runs are matched: line by line, then operator by operator, and again after a difference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anymps.compare import TracedCall
from anymps.compare._align import Pair, aligned
from compare_traces import Tracing, sketch

Row = tuple[str, int]
"""A call: its operator and line; `nonzero/3` has a result of three numbers."""


def calls(rows: Sequence[Row]) -> list[TracedCall]:
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
        ([A, *FAR, B, C, D], [A, B, C], [([0], [0]), ([*range(1, 9)], []), ([9], [1]), ([10], [2]), ([11], [])]),
        ([A, B, C], [A, *FAR, B, C, D], [([0], [0]), ([], [*range(1, 9)]), ([1], [9]), ([2], [10]), ([], [11])]),
        # A single match is enough behind six calls, on one side or on both, and not behind seven.
        ([A, *FAR[:6], B, C], [A, B, D], [([0], [0]), ([*range(1, 7)], []), ([7], [1]), ([8], [2])]),
        ([A, *FAR[:7], B, C], [A, B, D], [([0], [0]), ([*range(1, 10)], [1, 2])]),
        ([A, *FAR[:3], B, C], [A, *FAR[3:6], B, D], [([0], [0]), ([1, 2, 3], [1, 2, 3]), ([4], [4]), ([5], [5])]),
        ([A, *FAR[:3], B, C], [A, *FAR[3:7], B, D], [([0], [0]), ([*range(1, 6)], [*range(1, 7)])]),
        # Of several matches the one with the fewest calls before it on both sides together.
        ([A, C, D, B], [A, D, B, C], [([0], [0]), ([1], []), ([2], [1]), ([3], [2]), ([], [3])]),
        ([A, C, D, B], [A, B, B, C, D], [([0], [0]), ([], [1, 2]), ([1], [3]), ([2], [4]), ([3], [])]),
    ],
)
def test_lines(left: list[Row], right: list[Row], pairs: list[tuple[list[int], list[int]]]) -> None:
    """What only one run has is a pair with nothing on the other side, as short as can be."""
    assert matched(left, right) == pairs


def test_how_far_a_match_is_looked_for() -> None:
    """Among the next 2000 stretches of either run."""
    for length, found in ((1999, True), (2000, False)):
        far = [(f"x{number}", 100 + number) for number in range(length)]
        pairs = matched([*far, A, B, C], [A, B, C])
        other = matched([A, B, C], [*far, A, B, C])
        assert (len(pairs), len(other)) == ((4, 4) if found else (1, 1))
        assert other == [(right, left) for left, right in pairs]


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
        (["nonzero/2", "sum", "a"], ["nonzero/3", "sum", "b"], [([0], [0]), ([1], [1]), ([2], [2])]),
        (["nonzero/2", "nonzero/3"], ["nonzero/3", "nonzero/3"], [([0], [0]), ([1], [1])]),
        (["nonzero/2", "nonzero/2"], ["nonzero/3", "nonzero/2"], [([0], [0]), ([1], [1])]),
        (["nonzero/2", "a", "sum"], ["nonzero/3", "sum"], [([0, 1], [0]), ([2], [1])]),
        (["nonzero/2", "sum"], ["nonzero/3", "a", "sum"], [([0], [0, 1]), ([1], [2])]),
        (["nonzero/2", "sum/2", "a"], ["nonzero/3", "sum/3", "b"], [([0, 1, 2], [0, 1, 2])]),
        (["mul", "a", "b"], ["mul"], [([0], [0]), ([1, 2], [])]),
        (["mul/2", "neg", "abs"], ["mul/3", "mul/2", "neg", "abs"], [([], [0]), ([0], [1]), ([1], [2]), ([2], [3])]),
    ],
)
def test_calls_of_one_line(left: list[str], right: list[str], pairs: list[tuple[list[int], list[int]]]) -> None:
    """Matched by operator and shapes; one operator in pieces is one pair."""
    assert matched([(name, 7) for name in left], [(name, 7) for name in right]) == pairs


def test_many_calls_of_one_line_and_of_many_lines() -> None:
    """Each is in one pair, and no pair is empty."""
    for rows in ([("mul", 7)] * 300, [("mul", line) for line in range(300)]):
        assert matched(rows, rows) == [([number], [number]) for number in range(300)]
        assert matched(rows, rows[:299]) == [*(([number], [number]) for number in range(299)), ([299], [])]
        assert matched(rows[:299], rows) == [*(([number], [number]) for number in range(299)), ([], [299])]


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
