"""Plans: what a scenario says, what a trace makes of a Mac, and how it stretches to another batch size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anymps import parse_mac
from anymps._errors import UsageError
from anymps.device import enable
from anymps.plan import Kind, Scenario, Stretch, Trace, Verdict, parse_scenario, representative
from anymps.record import Phase, Site
from anymps.record._memory import Allocation, Category, MemoryStory

GIB = 1024**3
MAC = parse_mac("M3 Pro 18GB")
MINOR = 13


@pytest.fixture(autouse=True, scope="module")
def native_core() -> None:
    """The replay is done by the core."""
    enable("M3 Pro 18GB", require="virtual", quiet=True)


def allocation(number: int, born: int, died: int | None, size: int, step: int = 0) -> Allocation:
    """One buffer of `size` bytes."""
    where = Site("train.py", number, "main", "")
    return Allocation(
        number, born, died, born, size, size, Category.ACTIVATIONS, "aten::mm", "", where, step, Phase.FORWARD
    )


def story_of(*allocations: Allocation) -> MemoryStory:
    """A story that holds them."""
    return MemoryStory(allocations, None, 0, False)


def trace_of(*sizes: int) -> Trace:
    """So many buffers, all alive at the end."""
    return Trace.of(story_of(*(allocation(n, n, None, size) for n, size in enumerate(sizes, 1))))


# --- scenarios


def test_words_of_a_scenario() -> None:
    """Several changes in one text; short forms stand for the long ones."""
    assert parse_scenario("batch=8, checkpoint,bf16,unfused,sgd") == Scenario(
        batch=8, precision="bfloat16", checkpoint=True, fused=False, optimizer="sgd"
    )
    assert parse_scenario("precision=float16,sequence=128,accumulate=2") == Scenario(
        precision="float16", sequence=128, accumulate=2
    )
    assert parse_scenario("checkpoint=off") == parse_scenario("") == Scenario()


def test_a_scenario_has_a_label() -> None:
    """It is named as people would."""
    scenario = parse_scenario("batch=8,sequence=16,accumulate=2,bf16,nf4,checkpoint,fused,adam")
    assert scenario.label == (
        "batch 8, sequence 16, accumulation over 2, bfloat16 autocast, nf4 weights, activation checkpointing, "
        "fused optimizer, Adam"
    )
    assert Scenario().label == "as written"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch=0", "--what-if batch=0: batch is a number of 1 or more, as in batch=8"),
        ("batch", "--what-if batch: batch is a number of 1 or more, as in batch=8"),
        ("sequence=-3", "--what-if sequence=-3: sequence is a number of 1 or more, as in sequence=8"),
        ("checkpoint=maybe", "--what-if checkpoint=maybe: checkpoint is on or off"),
        ("precision=float64", "--what-if precision=float64: precision is one of bfloat16, float16"),
        ("weights=int4", "--what-if weights=int4: weights is one of nf4, int8"),
        ("optimizer=lion", "--what-if optimizer=lion: optimizer is one of sgd, adam, adamw"),
        (
            "bigger",
            "--what-if 'bigger' is not known; known: batch=N, sequence=N, accumulate=N, checkpoint, bf16, fp16, nf4, "
            "int8, fused, unfused, sgd, adam, adamw",
        ),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    """One line says what is wrong and what would be right."""
    with pytest.raises(UsageError) as raised:
        parse_scenario(text)
    assert str(raised.value) == message


# --- traces


def test_a_trace_has_births_and_deaths_in_their_order() -> None:
    """A birth is its size, a death names the birth; what was there before comes first."""
    story = story_of(allocation(7, 2, 4, 512), allocation(5, 0, None, 256), allocation(9, 3, None, 128))
    trace = Trace.of(story)
    assert trace.events == (256, 512, 128, -2)
    assert [one.id for one in trace.births] == [5, 7, 9]


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.5, Verdict.FITS), (0.95, Verdict.TIGHT), (1.2, Verdict.PAGES), (2.0, Verdict.FAILS)],
)
def test_verdicts_follow_from_the_share_of_the_working_set(share: float, verdict: Verdict) -> None:
    """Comfortable, tight, paging, failing; the margin is what is left of the working set."""
    count = int(share * MAC.recommended_max_memory // (GIB // 4))
    outcome = trace_of(*[GIB // 4] * count).replay(MAC, MINOR)
    assert outcome.verdict is verdict
    assert outcome.margin == MAC.recommended_max_memory - outcome.peak_reserved


def test_other_programs_take_memory() -> None:
    """A run has what they leave, where that is less than the working set; torch's own limit stays."""
    trace = trace_of(*[GIB] * 9)
    for taken, verdict, room in (
        (0, Verdict.FITS, MAC.recommended_max_memory),
        (9, Verdict.TIGHT, 9 * GIB),
        (12, Verdict.PAGES, 6 * GIB),
        (40, Verdict.PAGES, 0),
    ):
        outcome = trace.replay(replace(MAC, other_memory=taken * GIB), MINOR)
        assert (outcome.verdict, outcome.margin) == (verdict, room - outcome.peak_reserved)


def test_a_run_fits_only_with_what_others_take() -> None:
    """A model of tokens needs room for 37 of 100 bytes in use beside its heaps, up to 2.11 any other for 18."""
    tokens, other = Trace.of(story_of(allocation(1, 1, None, 9 * GIB)), Kind.TOKENS), trace_of(9 * GIB)
    for trace, minor, share, verdict, with_others in (
        (tokens, 13, 0.37, Verdict.TIGHT, Verdict.PAGES),
        (tokens, 11, 0.37, Verdict.TIGHT, Verdict.PAGES),
        (other, 11, 0.18, Verdict.FITS, Verdict.FITS),
    ):
        outcome = trace.replay(MAC, minor)
        assert (outcome.verdict, outcome.with_others) == (verdict, with_others)
        assert outcome.others == pytest.approx(share * (outcome.others + outcome.peak_reserved), rel=1e-6)
    assert other.replay(MAC, 13).others == 256 * 1024**2
    paging = Trace.of(story_of(*(allocation(n, n, None, GIB) for n in range(1, 17))), Kind.TOKENS)
    outcome = paging.replay(MAC, MINOR)
    assert (outcome.verdict, outcome.with_others) == (Verdict.PAGES, Verdict.FAILS)


def test_a_failing_replay_has_torchs_text_and_the_buffer() -> None:
    """The error is the one that torch raises there, and the allocation that met it is named."""
    outcome = trace_of(*[GIB] * 40).replay(MAC, MINOR)
    assert outcome.verdict is Verdict.FAILS
    assert outcome.message.startswith("MPS backend out of memory (MPS allocated: ")
    assert outcome.failing is not None
    assert outcome.failing.site.line == int(1.7 * MAC.recommended_max_memory // GIB) + 1


def test_freed_memory_is_used_again() -> None:
    """Many buffers one after the other need no more than one."""
    lives = [allocation(n, 2 * n, 2 * n + 1, GIB) for n in range(1, 60)]
    outcome = Trace.of(story_of(*lives)).replay(MAC, MINOR)
    assert (outcome.verdict, outcome.peak_allocated, outcome.peak_reserved) == (Verdict.FITS, GIB, GIB)


# --- stretching


def test_a_stretch_grows_each_allocation_by_its_own_slope() -> None:
    """Weights stay, activations grow; the measured batches come out as measured."""
    small, large = trace_of(1000, 400, 64), trace_of(1000, 800, 96)
    stretch = Stretch.between(small, 4, large, 8)
    assert stretch is not None
    assert stretch.slopes == (0.0, 100.0, 8.0)
    assert stretch.at(4).events == small.events
    assert stretch.at(8).events == large.events
    assert stretch.at(1).events == (1000, 100, 40)


def test_runs_of_another_course_cannot_be_stretched() -> None:
    """Another number of allocations, another order of deaths, or no larger batch: nothing is said."""
    one = Trace.of(story_of(allocation(1, 1, 3, 10), allocation(2, 2, 4, 20)))
    other = Trace.of(story_of(allocation(1, 1, 4, 10), allocation(2, 2, 3, 20)))
    assert Stretch.between(one, 4, other, 8) is None
    assert Stretch.between(one, 4, trace_of(10), 8) is None
    assert Stretch.between(one, 4, one, 4) is None


@pytest.mark.parametrize("sample", [GIB // 7, GIB // 3, GIB, 3 * GIB])
def test_the_largest_batch_is_that_of_trying_all(sample: int) -> None:
    """Bisection finds what brute force finds; the next one does not fit beside what others take."""
    stretch = Stretch.between(trace_of(GIB, sample, sample), 1, trace_of(GIB, 2 * sample, 2 * sample), 2)
    assert stretch is not None
    brute = 0
    while stretch.at(brute + 1).replay(MAC, MINOR).verdict is Verdict.FITS:
        brute += 1
    assert stretch.largest(MAC, MINOR) == brute > 0
    assert stretch.at(brute + 1).replay(MAC, MINOR).verdict is Verdict.TIGHT


def test_no_batch_fits_where_the_weights_alone_do_not() -> None:
    """Then the largest batch is 0."""
    stretch = Stretch.between(trace_of(*[GIB] * 20, 8), 1, trace_of(*[GIB] * 20, 16), 2)
    assert stretch is not None
    assert stretch.largest(MAC, MINOR) == 0


def test_one_mac_of_each_memory_size_is_shown() -> None:
    """Smallest first, none twice, no chip of a phone where there is another."""
    sizes = [mac.ram_gib for mac in representative()]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 512
    assert not any(mac.chip.startswith("Apple A") for mac in representative() if mac.ram_gib > 8)
