"""The typical step of a recording in the time of a Mac: what binds it, and where no time can be predicted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anymps import CostError, parse_mac
from anymps._text import duration
from anymps.cost import OperatorCall, predict_operator, walk_step
from anymps.forecast import Forecast, forecast, step_work
from anymps.forecast._happenings import _ran
from anymps.record import Fate, Phase, Recording, Wait
from timed_steps import MS, SIDE, Steps

MAC = parse_mac("M3 Pro 18GB")
PRODUCT = predict_operator(OperatorCall("aten::mm", (SIDE, SIDE), (SIDE,)), MAC, "2.13").device
SPEED = 0.65 / 1.31  # of this machine to an M3


def seen(recording: Recording) -> Forecast:
    """The forecast on the recording's own Mac, told twice alike."""
    found = forecast(recording)
    assert forecast(recording) is found
    assert found.mac == MAC
    assert sum(found.time.parts.values()) == pytest.approx(found.time.seconds)
    return found


def alike(step: Callable[[Steps], None], **meta: object) -> Recording:
    """Three steps that do the same."""
    steps = Steps(**meta)
    for _ in range(3):
        step(steps)
        steps.end()
    return steps.close()


def test_compute_binds_a_step() -> None:
    """Ten products: their time, and a sentence with the interval."""
    found = seen(alike(lambda it: it.product(10)))
    assert found.time.seconds == pytest.approx(10 * PRODUCT)
    assert found.sentence == ("A step would take about 33.9 ms on an M3 Pro 18GB (22.9 to 50.3 ms), bound by compute.")


def test_launches_bind_a_step() -> None:
    """Small calls, and one large one that hides behind none of them."""
    assert seen(alike(lambda it: it.small(1000))).bound == "launches"


def test_one_step_alone_has_no_time() -> None:
    """Imports and the making of the model are in it; what the GPU has to do is told."""
    steps = Steps()
    steps.product(10, gap=500 * MS)
    steps.end()
    assert seen(steps.close()).sentence == (
        "No time is predicted from a single step, because it includes all that came before it, such as imports. A "
        "step would keep the GPU of an M3 Pro 18GB busy for about 33.9 ms (22.9 to 50.3 ms)."
    )


def test_a_step_that_the_cpu_would_do_faster() -> None:
    """Small calls alone: the shortest step here, on that Mac's core. The first step does not count."""
    steps = Steps(virtual=True)
    for number in (10, 1000, 1000, 1200):
        steps.small(number)
        steps.end()
    found = seen(steps.close())
    assert found.on_cpu == pytest.approx(1000 * 1500e-9 * SPEED)
    assert found.sentence.endswith("bound by launches. That Mac's CPU alone would take about 744 us.")


def test_a_step_with_other_work_says_nothing_of_the_typical_one() -> None:
    """Here most steps evaluate, too, and read values; how long the others take is no time of theirs."""
    steps = Steps(virtual=True)
    for number, reads in ((10, 0), (1000, 4), (1000, 4), (10, 0)):
        steps.small(number)
        for _ in range(reads):
            steps.item()
        steps.end()
    assert seen(steps.close()).on_cpu == pytest.approx(1004 * 1500e-9 * SPEED)


@pytest.mark.parametrize(
    ("products", "meta"),
    [(0, {"virtual": False}), (0, {"virtual": True, "real_calls": {"aten::relu": 1}}), (10, {"virtual": True})],
    ids=["a Mac's own device", "PyTorch's own kernels", "large operators, which many cores share"],
)
def test_what_this_cpu_did_not_compute_says_nothing_of_a_macs(products: int, meta: dict[str, object]) -> None:
    """Nor do large operators: how many cores share them, and how these are built, is not known."""
    assert seen(alike(lambda it: it.product(products) if products else it.small(1000), **meta)).on_cpu is None


def test_a_read_costs_what_the_step_takes_without_it() -> None:
    """At its line, by its kind."""
    steps = Steps()
    for _ in range(3):
        steps.product(3)
        steps.item()
        steps.small(100)
        steps.end()
    found = seen(steps.close())
    (wait,) = found.waits
    assert (wait.place.file, wait.place.line, wait.place.wait, wait.waits) == (
        "/home/me/project/train.py", 36, Wait.ITEM, 1
    )  # fmt: skip
    assert wait.seconds == pytest.approx(found.time.seconds - found.time.device)


def test_a_fallback_takes_what_it_took_here() -> None:
    """80 ms of this machine, scaled to the Mac's CPU; the copies inside are not counted twice."""
    steps = Steps()
    for _ in range(3):
        steps.product(10)
        steps.fallback(80 * MS)
        steps.end()
    found = seen(steps.close())
    assert found.bound == "CPU fallbacks"
    assert found.time.seconds == pytest.approx(10 * PRODUCT + 80e-3 * SPEED, rel=0.02)


@pytest.mark.parametrize(("count", "held_up", "grows"), [(6, (3,), False), (8, (2, 6), True)])
def test_own_code_counts_by_its_usual_gap(count: int, held_up: tuple[int, ...], grows: bool) -> None:
    """20 ms of Python in each step, but where something else held the machine up; by place where a cache grows."""
    steps = Steps()
    for number in range(count):
        first = f"float32[{number + 1}, 2048]" if grows else SIDE
        steps.entry("aten::cat", 1000, inputs=(first,), outputs=(first,))
        steps.product(1, gap=60 * MS if number in held_up else 20 * MS)
        steps.end()
    found = seen(steps.close())
    assert found.bound == "the program's own code"
    assert found.time.seconds == pytest.approx(20e-3 * SPEED, rel=0.02)


def test_a_short_batch_is_a_part_of_the_step() -> None:
    """With workers it is told that they must keep up."""
    steps = Steps()
    steps.builder.note("loader", start_ns=0, workers=2, pin_memory=False, persistent=True)
    for _ in range(3):
        steps.batch(10 * MS)
        steps.product(10)
        steps.item()
        steps.end()
    found = seen(steps.close())
    assert found.time.parts[Phase.BATCH] == pytest.approx(10e-3 * SPEED, rel=0.02)
    assert found.sentence.endswith("bound by compute, if the loader's workers keep up.")


def test_paging_has_no_time() -> None:
    """Heaps above the working set."""
    steps = Steps()
    steps.builder.allocation(14 << 30, phase=Phase.FORWARD)
    for _ in range(3):
        steps.product(10)
        steps.end()
    recording = steps.close()
    assert seen(recording).no_time == (
        "No time is predicted for a step: its memory is above the Mac's working set, so macOS pages."
    )
    assert forecast(recording, parse_mac("M4 Max 64GB")).no_time == ""


def test_other_macs_have_other_times() -> None:
    """The same recording on a faster one."""
    recording = alike(lambda it: it.product(10))
    assert forecast(recording, parse_mac("M4 Max 64GB")).time.seconds < 0.6 * forecast(recording).time.seconds
    tracks = forecast(recording).time
    assert len(tracks.device_track) == 10


def test_without_a_step_there_is_one_line() -> None:
    """The other reasons are those of a report."""
    with pytest.raises(CostError, match="the recording holds no complete step"):
        forecast(Steps().close())


def test_what_has_no_time_is_named_as_far_as_a_line_goes() -> None:
    """Three operators, those with most calls first, and the calls of the others."""
    for names, missing in (
        ("dcbdccd", "3 of aten::c, 3 of aten::d and 1 of aten::b"),
        ("dcbadccd", "3 of aten::c, 3 of aten::d, 1 of aten::a and 1 of others"),
        ("edcbadccd", "3 of aten::c, 3 of aten::d, 1 of aten::a and 2 of others"),
    ):
        steps = Steps()
        for name in sorted(names):
            steps.entry(f"aten::{name}", 0, inputs=(SIDE,), outputs=(SIDE,))
        steps.end()
        with pytest.raises(CostError) as caught:
            forecast(steps.close())
        assert str(caught.value).partition("(missing: ")[2] == f"{missing})"


def test_the_work_of_a_plan_is_that_of_a_whole_batch() -> None:
    """The last batch of an epoch may be smaller: of steps alike the one with the largest tensors counts."""
    steps = Steps()
    for side in ("float32[64, 64]", SIDE, "float32[16, 16]"):
        steps.entry("aten::mm", 1000, inputs=(side, side), outputs=(side,))
        steps.end()
    found = step_work(steps.close())
    assert found is not None
    assert [happening.call.inputs for happening in found.happenings if happening.call is not None] == [(SIDE, SIDE)]


def test_a_plan_has_the_time_of_a_run() -> None:
    """The program's own code between the calls counts in both, of the steps but the first one."""
    steps = Steps()
    for own in (90_000, 4_000, 6_000, 5_000):
        for _ in range(3):
            steps.entry("aten::mm", own * 1000, inputs=(SIDE, SIDE), outputs=(SIDE,))
        steps.item()
        steps.end()
    recording = steps.close()
    of_run, work = forecast(recording), step_work(recording)
    assert work is not None
    of_plan = walk_step(work.happenings, of_run.mac, of_run.torch, busy=work.busy)
    assert (of_plan.seconds, of_plan.device, of_plan.host, of_plan.shares, of_plan.low, of_plan.high) == (
        of_run.time.seconds, of_run.time.device, of_run.time.host, of_run.time.shares, of_run.time.low, of_run.time.high
    )  # fmt: skip
    assert dict(of_plan.shares)["host code"] > 0.0019


@pytest.mark.parametrize("extra", [0, 5])
def test_what_a_plan_sees_of_a_log_or_a_validation_is_no_part_of_each_step(extra: int) -> None:
    """It came after the first step, and so in the second of three."""
    steps = Steps()
    for number in range(3):
        if number == 1:
            steps.product(extra)
            steps.item()
        steps.product(3)
        steps.end()
    found = step_work(steps.close())
    assert found is not None
    assert [happening.kind for happening in found.happenings] == ["kernel"] * 3 + ["wait"]
    assert not any(happening.waits for happening in found.happenings)


@pytest.mark.parametrize(
    ("whole", "lost", "all_interrupted", "taken"),
    [(6.0, 9.5, False, 6.0), (6.0, 9.5, True, 0.5)],
)
def test_an_interrupted_gap(whole: float, lost: float, all_interrupted: bool, taken: float) -> None:
    """Of 10 ms it lost 9.5 ms: that proves no 0.5 ms, where others took 6 ms in one piece."""
    steps = Steps()
    for number in range(4):
        gap, delay = (10.0, lost) if number == 2 or all_interrupted else (whole, 0.0)
        steps.entry(
            "aten::relu", int(gap * MS), inputs=("float32[4]",), outputs=("float32[4]",), delayed_us=int(1000 * delay)
        )
        steps.end()
    assert seen(steps.close()).time.parts[Phase.FORWARD] == pytest.approx(taken * 1e-3 * SPEED, rel=0.05)


def test_what_one_pass_in_four_takes_longer_stays() -> None:
    """One place four times a step, the last of which really does more: so it is in each step."""
    steps = Steps()
    for number in range(6):
        for gap in (5, 5, 5, 25):
            steps.product(1, gap=(gap + 30 * (number == 3)) * MS)
        steps.end()
    assert seen(steps.close()).time.seconds == pytest.approx(40e-3 * SPEED, rel=0.02)


def test_own_code_goes_by_the_speed_of_the_core_that_ran_it() -> None:
    """20 ms on a core as fast as that of an M1; where a recording does not tell, it is taken to be 0.65 of one."""
    found = []
    for meta in ({"core_speed": 1.0}, {"core_speed": 0.5}, {}):
        steps = Steps(**meta)
        for _ in range(4):
            steps.product(1, gap=20 * MS)
            steps.end()
        found.append(seen(steps.close()).time.seconds)
    assert found == pytest.approx([20e-3 / 1.31, 10e-3 / 1.31, 20e-3 * SPEED], rel=0.02)


def test_a_fallback_goes_by_the_speed_at_which_the_core_computes() -> None:
    """Another program had half of the core: that slows code more than computing."""
    found = []
    for meta, gap, work in (
        ({"core_speed": 0.5, "compute_speed": 0.5}, 8, 40),
        ({"core_speed": 0.3125, "compute_speed": 0.4}, 12.8, 50),
        ({"core_speed": 0.5}, 8, 40),  # of an earlier version
    ):
        steps = Steps(**meta)
        for _ in range(4):
            steps.product(1, gap=int(gap * MS))
            steps.fallback(work * MS)
            steps.end()
        found.append(seen(steps.close()).time.seconds)
    assert found == pytest.approx([24e-3 / 1.31 + PRODUCT] * 3, rel=0.03)


def test_a_core_that_others_had_is_taken_off() -> None:
    """20 ms of Python, in each step beside 30 ms in which the thread could have run: the machine was busy."""
    quiet, steps = Steps(), Steps()
    for _ in range(4):
        quiet.product(1, gap=20 * MS)
        steps.entry("aten::mm", 50 * MS, inputs=(SIDE, SIDE), outputs=(SIDE,), delayed_us=30_000)
        quiet.end()
        steps.end()
    alone, found = seen(quiet.close()), seen(steps.close())
    assert found.time.seconds == pytest.approx(alone.time.seconds)
    assert (alone.busy, found.busy) == (0.0, pytest.approx(0.6))
    assert found.time.high / found.time.seconds > 1.2 * alone.time.high / alone.time.seconds
    assert found.sentence == (
        "A step would take about 9.94 ms on an M3 Pro 18GB (3.42 to 28.9 ms), bound by the program's own code. This "
        "machine was busy: for 60 % of the time in its own code, the program waited for a core. That time is "
        "subtracted, and the interval is wider."
    )


def test_a_delay_is_taken_off_loading_and_fallbacks() -> None:
    """Half of a batch's time, and of a fallback's, the thread was kept waiting."""
    steps, quiet = Steps(), Steps()
    for _ in range(3):
        for one, times in ((steps, 2), (quiet, 1)):
            one.entry(
                "anymps::dataloader", 0, times * 10 * MS, fate=Fate.MARK, phase=Phase.BATCH,
                delayed_us=10_000 * (times - 1),
            )  # fmt: skip
            one.product(10)
            one.entry(
                "aten::linalg_svd", 0, times * 10 * MS, fate=Fate.FALLBACK, wait=Wait.FALLBACK, inputs=(SIDE,),
                outputs=(SIDE,), delayed_us=10_000 * (times - 1),
            )  # fmt: skip
            one.end()
    assert seen(steps.close()).time.seconds == pytest.approx(seen(quiet.close()).time.seconds)


@pytest.mark.parametrize(("gap", "length"), [(8_150, 2_120), (150, 10_120)])
def test_a_delay_belongs_to_the_time_that_is_as_long(gap: int, length: int) -> None:
    """8 ms that were lost before a fallback of 2.1 ms are not taken off the fallback, and the other way round."""
    steps, quiet = Steps(), Steps()
    for _ in range(3):
        for one, times in ((steps, (gap, length, 8_000)), (quiet, (150, 2_120, 0))):
            before, takes, delayed = times
            one.product(10)
            one.entry(
                "aten::linalg_svd", 1000 * before, 1000 * takes, fate=Fate.FALLBACK, wait=Wait.FALLBACK,
                inputs=(SIDE,), outputs=(SIDE,), delayed_us=delayed,
            )  # fmt: skip
            one.end()
    found, alone = forecast(steps.close()), forecast(quiet.close())
    assert found.time.seconds == pytest.approx(alone.time.seconds)
    assert [happening.work for happening in found.happenings] == [happening.work for happening in alone.happenings]


@pytest.mark.parametrize(
    ("gap", "length", "delayed", "shares"),
    [
        (40_000, 10_000, 30, (0.25, 1.0)),
        (10_000, 40_000, 30, (1.0, 0.25)),
        (30_000, 30_000, 12, (0.8, 0.8)),
        (10_000, 40_000, 45, (0.1, 0.1)),
        (10_000, 10_000, 30, (0.0, 0.0)),
        (0, 0, 30, (1.0, 1.0)),
    ],
)
def test_shares_of_a_gap_and_of_its_call(gap: int, length: int, delayed: int, shares: tuple[float, float]) -> None:
    """In the one that alone is as long as the delay; where both are, or neither is, in each by its length."""
    assert _ran(gap, length, delayed) == pytest.approx(shares)


def test_loading_has_no_time_but_the_number_of_the_step_table() -> None:
    """Nobody knows what it takes on that Mac. Here batches differ: the median counts. What the GPU works is told."""
    steps = Steps()
    for length in (500, 120, 120, 90, 150, 200):
        steps.batch(length * MS)
        steps.product(10)
        steps.end()
    recording = steps.close()
    (loading,) = (share.time_ns for share in recording.step_table().typical if share.phase is Phase.BATCH)
    assert seen(recording).sentence == (
        f"Data loading would limit a step, so no time is predicted: it took {duration(loading)} here. "
        "A step would keep the GPU of an M3 Pro 18GB busy for about 33.9 ms (22.9 to 50.3 ms)."
    )


def test_calls_have_the_layout_and_axis_of_the_recording() -> None:
    """A linear layer of a transposed weight, a sum over the first axis, a convolution of permuted channels."""
    image, weight = "float32[8, 16, 32, 32]", "float32[16, 16, 3, 3]"
    steps = Steps()
    for _ in range(2):
        steps.entry(
            "aten::linear", 0, inputs=(SIDE, SIDE), outputs=(SIDE,), form={"layout": ["contiguous", "transposed"]}
        )
        steps.entry("aten::sum.dim_IntList", 0, inputs=(SIDE,), outputs=("float32[2048]",), form={"axes": [0]})
        steps.entry("aten::sum.dim_IntList", 0, inputs=(SIDE,), outputs=("float32[]",), form={"axes": [0, 1]})
        steps.entry(
            "aten::convolution", 0, inputs=(image, weight), outputs=(image,),
            form={"layout": ["channels_last", "contiguous"], "stride": [1, 1], "dilation": [1, 1], "groups": [1]},
        )  # fmt: skip
        steps.entry("aten::mul.Tensor", 0, inputs=(image,), outputs=(image,), form={"layout": ["channels_last"]})
        for layout in (["contiguous", "transposed"], ["contiguous", "rows"], ["transposed", "transposed"]):
            steps.entry("aten::copy_", 0, inputs=(image, image), form={"layout": layout})
        steps.end()
    work = step_work(steps.close())
    assert work is not None
    calls = [happening.call for happening in work.happenings if happening.call is not None]
    assert [(call.axis, call.transposed) for call in calls[:5]] == [
        (None, True), (0, False), (None, False), (None, True), (None, False)
    ]  # fmt: skip
    assert [call.strided for call in calls] == [False] * 5 + [True, False, False]
    times = [predict_operator(call, MAC, "2.13").kind for call in calls[:2]]
    assert times == ["linear_view", "reduce_first"]


def test_another_release_of_torch() -> None:
    """Its own times for the same calls; whoever asks for none gets that of the recording."""
    recording = alike(lambda it: it.small(1000))
    older = forecast(recording, torch="2.4")
    assert (older.torch, forecast(recording).torch) == ("2.4", "2.13.0+cpu")
    assert older.time.seconds > 1.2 * forecast(recording).time.seconds
    assert older.sentence.endswith(" These are the times of torch 2.4, for the calls that torch 2.13.0 makes here.")
