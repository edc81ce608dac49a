"""Two runs side by side: their losses, whether they agree, what decided on another path, and what is compared."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from anymps.compare import Bound, Cause, Comparison, Divergence
from anymps.compare._comparison import LossPair
from anymps.compare._divergences import Shared
from compare_traces import EXACT, SUM, Tracing, compared, sketch

X = sketch([1.0, -2.0, 3.0])
Y = sketch([2.0, 4.0, 8.0])
Z = sketch([5.0, 6.0, 7.0])


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        (1.0, 1.0, 0.0),
        (0.0, 0.0, 0.0),
        (4.0, 3.0, 0.25),
        (-3.0, -4.0, 0.25),
        (1.0, -1.0, 2.0),
        (0.0, 1e-9, 1.0),
        (math.nan, math.nan, 0.0),
        (math.inf, math.inf, 0.0),
        (1.0, math.nan, math.inf),
        (math.nan, 1.0, math.inf),
        (1.0, math.inf, math.inf),
        (math.inf, -math.inf, math.inf),
    ],
)
def test_how_far_two_losses_are_apart(left: float, right: float, difference: float) -> None:
    """Relative to the larger; two NaN are no difference, one is."""
    assert LossPair(0, left, right).difference == difference


def test_losses_agree_up_to_twice_what_the_tests_of_mps_allow() -> None:
    """6e-5 of the larger."""
    for apart, agrees in ((5.9e-5, True), (6.1e-5, False)):
        found = compared(lambda trace, second, apart=apart: trace.loss(2.0).loss(1.0 - second * apart))
        assert found.largest_difference == pytest.approx(apart, rel=1e-9)
        assert found.losses_agree is found.agrees is agrees
    assert compared(lambda trace, second: trace).losses_agree


def test_what_agrees() -> None:
    """Runs that diverge, or one of which ended with an error, do not."""
    assert compared(lambda trace, second: trace.call("relu", 1, [X], [Y])).agrees
    assert not compared(lambda trace, second: trace.call("relu", 1, [X], [Z if second else Y])).agrees
    assert not compared(lambda trace, second: trace.call("relu", 1, [X], [Y]), error="E").agrees


def test_steps_of_losses() -> None:
    """The optimizer's step, or, without an optimizer, their number; of the shorter run."""

    def make(trace: Tracing, second: bool) -> Tracing:
        trace.step = 5
        trace.loss(1.0).loss(2.0)
        return trace if second else trace.loss(3.0)

    for steps, expected in ((7, [5, 6]), (1, [5, 6]), (0, [0, 1])):
        found = compared(make, steps=steps)
        assert [(pair.step, pair.left, pair.right) for pair in found.losses] == [
            (expected[0], 1.0, 1.0),
            (expected[1], 2.0, 2.0),
        ]
        assert found.loss_site.line == 90


@pytest.mark.parametrize("side", [False, True])
def test_where_one_run_has_no_losses_the_reads_stand_for_them(side: bool) -> None:
    """A run that stopped before its first backward."""

    def make(trace: Tracing, second: bool) -> Tracing:
        trace.read(6, 1.0).read(7, 2.0).read(6, 3.0)
        return trace.loss(0.5) if second is side else trace

    found = compared(make)
    assert found.loss_site.line == 6
    assert [(pair.step, pair.left) for pair in found.losses] == [(0, 1.0), (1, 3.0)]


def test_without_losses_and_reads_there_are_none() -> None:
    """The line is unknown then; so many reads count as both have."""
    found = compared(lambda trace, second: trace.call("relu", 1, [X], [Y]))
    assert (found.losses, found.loss_site.line) == ((), 0)
    more = compared(lambda trace, second: trace.read(6, 1.0) if second else trace.read(6, 1.0).read(6, 2.0))
    assert [(pair.left, pair.right) for pair in more.losses] == [(1.0, 1.0)]


def test_which_runs_used_their_device() -> None:
    """By their facts, which are there if they were cut short, too; the CPU always."""
    assert not compared(lambda trace, second: trace, used=False).is_used
    assert compared(lambda trace, second: trace, used=True).is_used
    assert compared(lambda trace, second: trace, names=("cpu", "cpu"), used=False).is_used
    assert not compared(lambda trace, second: trace, names=("mps", "cpu"), used=False).is_used


def test_kernels_of_two_releases() -> None:
    """Of one release, or on one side only, they are not two."""
    for one, other, two in (("2.13", "2.15", True), ("2.13", "2.13", False), ("2.13", "", False), ("", "", False)):

        def make(trace: Tracing, second: bool, one: str = one, other: str = other) -> Tracing:
            trace.trace.facts["kernels_torch"] = other if second else one
            return trace

        assert compared(make).has_releases is two


@pytest.mark.parametrize(
    ("by", "shared"),
    [
        ([(True, True), (True, True)], Shared(2, 0)),
        ([(True, False), (False, True)], Shared(0, 2)),
        ([(False, False)], Shared(0, 0)),
        ([(True, False), (True, True), (False, False), (False, True), (True, True)], Shared(2, 2)),
    ],
)
def test_calls_by_kernels(by: list[tuple[bool, bool]], shared: Shared) -> None:
    """How many pairs both runs computed with PyTorch's own kernels, and how many one of them; each run's own count."""

    def make(trace: Tracing, second: bool) -> Tracing:
        for line, both in enumerate(by):
            trace.call("relu", line, [X], [Y], by_kernel=both[second])
        return trace

    found = compared(make)
    assert found.by_kernels == shared
    assert [side.kernel_calls for side in found.sides] == [sum(both[at] for both in by) for at in (0, 1)]
    assert [(side.calls, side.traced_steps) for side in found.sides] == [(len(by), (0, 1, 2, 3))] * 2


def test_first_is_the_first_in_the_program() -> None:
    """In the order of the first run."""

    def make(trace: Tracing, second: bool) -> Tracing:
        one = Z if second else Y
        return trace.call("relu", 1, [X], [Y]).call("neg", 2, [X], [one]).call("abs", 3, [X], [one])

    found = compared(make)
    assert [one.call.site.line for one in found.divergences] == [2, 3]
    assert found.first is found.divergences[0]
    assert compared(lambda trace, second: trace).first is None


def test_the_same_divergence_is_counted() -> None:
    """Of one cause, operator and line; the first call and the difference of the first stay."""

    def make(trace: Tracing, second: bool) -> Tracing:
        for size in (1.0, 3.0, 2.0):
            trace.call("relu", 1, [X], [sketch([2.0, 4.0, 8.0 + second * size])], bound=EXACT)
        return trace.call("neg", 1, [X], [Z if second else Y])

    first, other = compared(make).divergences
    assert (first.cause, first.times, first.difference, first.left[0].number) == (Cause.NUMBER, 3, 1.0, 0)
    assert first.relative == pytest.approx(1 / 9)
    assert (other.times, other.call.name) == (1, "neg")


def test_relative_differences() -> None:
    """Of nothing 0, or infinite if there is a difference; of calls on one side only there is none."""
    call = Tracing().call("relu", 1).trace.calls[0]
    zero = sketch([0.0])
    assert Divergence(Cause.BRANCH, (call,), ()).relative == 0.0
    assert Divergence(Cause.BRANCH, (call,), ()).call is call
    assert Divergence(Cause.NUMBER, (call,), (call,), zero, zero).relative == 0.0
    assert Divergence(Cause.NUMBER, (call,), (call,), sketch([-4.0]), sketch([-3.0])).relative == 0.25


def test_what_rounding_did() -> None:
    """From the same bytes: how many results were the same, the first that was not, the largest share of its bound."""
    bound = Bound("function", 0.0, 1.0, 1, False, 0.0, 1.0)  # 2 apart at most

    def make(trace: Tracing, second: bool) -> Tracing:
        trace.call("relu", 1, [X], [Y, Z], bound=bound)
        for line, apart in ((2, 0.5), (3, 1.0), (4, 0.25)):
            trace.call("relu", line, [X], [sketch([2.0, 4.0, 8.0 + second * apart])], bound=bound)
        return trace

    found = compared(make)
    rounding = found.rounding
    assert (found.compared, rounding.compared, rounding.same) == (4, 5, 2)
    assert rounding.share == 0.5
    assert rounding.first is not None
    assert rounding.first.left[0].site.line == 2
    assert rounding.relative == pytest.approx(0.5 / 8.5)
    assert found.agrees


def test_a_share_is_at_most_the_whole() -> None:
    """Of what goes beyond its bound."""
    found = compared(lambda trace, second: trace.call("relu", 1, [X], [Z if second else Y], bound=EXACT))
    assert (found.rounding.share, found.rounding.first) == (1.0, None)


def test_steps_match_again() -> None:
    """Runs that take different paths in one step are compared again in the next; steps that one lacks are not."""

    def make(trace: Tracing, second: bool) -> Tracing:
        trace.call("relu", 1, [X], [Y]).loss(1.0)
        trace.call("neg" if second else "abs", 2 + second, [X], [Y]).loss(1.0)
        trace.call("relu", 1, [X], [Y]).loss(1.0)
        return trace if second else trace.call("relu", 1, [X], [Y]).loss(1.0)

    found = compared(make)
    assert [(one.cause, [call.site.line for call in (*one.left, *one.right)]) for one in found.divergences] == [
        (Cause.BRANCH, [2, 3])
    ]
    assert found.compared == 2


@pytest.mark.parametrize(
    ("ending", "causes"),
    [({"is_cut": True}, []), ({"error": "E"}, []), ({"is_cut": False}, [Cause.BRANCH])],
)
def test_calls_that_a_run_did_not_reach(ending: dict[str, object], causes: list[Cause]) -> None:
    """At the end of a run that was cut or failed they are no other path; of one that ended well they are."""

    def make(trace: Tracing, second: bool) -> Tracing:
        trace.call("relu", 1, [X], [Y])
        return trace if second else trace.call("neg", 2, [Y], [X]).call("abs", 3, [X], [Y])

    assert [one.cause for one in compared(make, **ending).divergences] == causes
    both = compared(lambda trace, second: trace.call("relu", 1, [X], [Z if second else Y]), is_cut=True)
    assert [one.cause for one in both.divergences] == [Cause.NUMBER]  # where both came, they are compared


def branching(*reads: tuple[int, int, float, float], late: bool = False) -> Comparison:
    """Two runs that part at line 4 or 5, behind numbers that they read: line in either run, value in either run."""

    def make(trace: Tracing, second: bool) -> Tracing:
        trace.call("relu", 1, [X], [Y])
        for one, other, left, right in reads:
            trace.read(other if second else one, right if second else left)
        trace.call("abs" if second else "neg", 5 if second else 4, [X], [Y])
        return trace.read(9, 1.0 + second) if late else trace

    return compared(make)


def test_what_decided_on_the_path() -> None:
    """The last number that both read before they parted, if it differed."""
    decided = branching((2, 2, 7.0, 8.0), (3, 3, 1.0, 2.0)).decided
    assert decided is not None
    assert [(read.site.line, read.value) for read in decided] == [(3, 1.0), (3, 2.0)]
    assert branching((2, 2, 7.0, 8.0), (3, 3, 1.0, 1.0)).decided is None
    assert branching().decided is None
    other = branching((2, 2, 7.0, 8.0), (3, 6, 1.0, 2.0)).decided  # they read at different lines already
    assert other is not None
    assert other[0].site.line == 2
    assert branching(late=True).decided is None
    early = branching((2, 2, 7.0, 8.0), late=True).decided
    assert early is not None
    assert early[0].site.line == 2
    assert compared(lambda trace, second: trace.read(2, 1.0 + second)).decided is None


def test_casts_of_autocast_and_backward_are_no_calls() -> None:
    """The calls that they cast for say more; a cast of the program is one."""

    def make(trace: Tracing, second: bool) -> Tracing:
        if second:
            trace.call("_to_copy", 1, [X], [Y], autocast="float16").call("_to_copy", 2, [X], [Y], backward=True)
        trace.call("_to_copy", 3, [X], [Y]).call("relu", 4, [X], [Y], autocast="float16")
        return trace.call("relu", 5, [X], [Y], backward=True)

    found = compared(make)
    assert found.agrees
    assert (found.compared, [side.calls for side in found.sides]) == (3, [3, 5])


@pytest.mark.parametrize("operator", ["zeros", "ones", "full", "arange", "scalar_tensor", "new_zeros", "clone", "copy"])
def test_constants_and_copies_are_no_path(operator: str) -> None:
    """One device needs more of them than the other."""

    def make(trace: Tracing, second: bool) -> Tracing:
        if second:
            trace.call(operator, 2, [], [Z])
        return trace.call("relu", 1, [X], [Y])

    assert compared(make).divergences == ()


def test_lines_beside_are_no_path() -> None:
    """More calls of the line before or after belong to it."""

    def make(trace: Tracing, second: bool, line: int) -> Tracing:
        trace.call("relu", 1, [X], [Y])
        if second:
            trace.call("neg", line, [X], [Y])
        return trace.call("abs", 2, [X], [Y])

    for line, causes in ((1, []), (2, []), (3, [Cause.BRANCH])):
        found = compared(lambda trace, second, line=line: make(trace, second, line))
        assert [one.cause for one in found.divergences] == causes


def test_random_numbers_that_are_the_same_or_follow() -> None:
    """The same numbers do not part; of inputs that differ already they are a consequence, unless nothing is read."""

    def make(trace: Tracing, second: bool, inputs: list[object], same: bool) -> Tracing:
        result = Y if same or not second else Z
        given = [Z if second else Y] if inputs else []
        if inputs == ["same"]:
            given = [X]
        return trace.call("bernoulli", 1, given, [result], random=True)

    for inputs, same, causes in (
        (["same"], True, []),
        (["same"], False, [Cause.RANDOM]),
        (["other"], False, []),
        ([], False, [Cause.RANDOM]),
    ):
        found = compared(lambda trace, second, inputs=inputs, same=same: make(trace, second, inputs, same))
        assert [one.cause for one in found.divergences] == causes


@pytest.mark.parametrize(("apart", "cause"), [(2.0**-9, [Cause.DATA]), (2.0**-11, [])])
def test_data_from_elsewhere(apart: float, cause: list[Cause]) -> None:
    """A first input that no call made and that differs by more than 2**-10; less may be rounding of what made it."""
    given = sketch([1.0, 1.0])

    def make(trace: Tracing, second: bool) -> Tracing:
        return trace.call("relu", 1, [sketch([1.0, 1.0 - apart]) if second else given], [Z if second else Y])

    found = compared(make)
    assert [one.cause for one in found.divergences if one.cause is Cause.DATA] == cause
    if cause:
        assert found.divergences[0].difference == apart


def test_untraced_steps_may_have_made_the_data() -> None:
    """It is from elsewhere only as long as all steps before are traced."""
    for traced, causes in (([0, 1, 2], [Cause.DATA]), ([0, 2], [])):

        def make(trace: Tracing, second: bool, traced: list[int] = traced) -> Tracing:
            trace.trace.traced_steps = traced
            trace.call("relu", 1, [X], [Y])
            trace.step = 2
            return trace.call("relu", 2, [Z if second else X], [X if second else Y])

        assert [one.cause for one in compared(make).divergences if one.cause is Cause.DATA] == causes


def test_operators_in_pieces_may_differ_as_the_tests_of_mps_allow() -> None:
    """By the widest limit among them; not at all if all are exact."""
    loose = replace(SUM, limit=1e-2, least=0.0)

    def make(trace: Tracing, second: bool, apart: float, bounds: tuple[Bound, Bound]) -> Tracing:
        result = sketch([2.0, 4.0, 8.0 + second * apart])
        if not second:
            return trace.call("addmm", 1, [X, Y], [result], bound=bounds[0])
        return trace.call("mm", 1, [X, Y], [Z], bound=bounds[1]).call("add", 1, [Z], [result], bound=bounds[0])

    for apart, bounds, parts in (
        (0.15, (SUM, loose), False),
        (0.17, (SUM, loose), True),
        (1e-4, (SUM, SUM), False),
        (1e-9, (EXACT, EXACT), True),
        (1e-4, (EXACT, SUM), False),
    ):
        found = compared(lambda trace, second, apart=apart, bounds=bounds: make(trace, second, apart, bounds))
        assert bool(found.divergences) is parts, (apart, bounds)
        for one in found.divergences:
            assert [[call.name for call in side] for side in (one.left, one.right)] == [["addmm"], ["mm", "add"]]
