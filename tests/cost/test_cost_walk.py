"""A step walked with two clocks: hand-made steps with known answers for everything that can bind one."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from anymps import CostError, parse_mac
from anymps.cost import Happening, OperatorCall, StepBound, WalkedStep, predict_operator, walk_step
from anymps.cost._clocks import Move
from anymps.cost._coefficients import shipped, torch_release
from anymps.cost._predict import CALL, dispatch_seconds, transfer_seconds
from anymps.cost._walk import _WIDER_FOR_FALLBACKS, _WIDER_FOR_HOST_CODE, _Book, _widening, walked_step

M1 = parse_mac("M1 16GB")
TORCH = "2.13"
WAIT = shipped().wait * 1e-6 * shipped().wait_base_chip
SMALL = OperatorCall("aten::relu", ("float32[16]",), ("float32[16]",))
SIDE = "float32[2048, 2048]"
LARGE = OperatorCall("aten::mm", (SIDE, SIDE), (SIDE,))
WIDE = OperatorCall("aten::add.Tensor", ("float32[8192, 8192]",) * 2, ("float32[8192, 8192]",))
HOST = predict_operator(SMALL, M1, TORCH).host
DEVICE = predict_operator(LARGE, M1, TORCH).device
GRAPH = predict_operator(LARGE, M1, TORCH).host  # through MPSGraph, which `relu` is not since torch 2.12


def walked(*happenings: Happening, mac: str = "M1 16GB") -> WalkedStep:
    """The step on a Mac."""
    return walk_step(happenings, parse_mac(mac), TORCH)


def kernels(call: OperatorCall, number: int) -> list[Happening]:
    """The same call, some times."""
    return [Happening("kernel", call, part="forward")] * number


def test_small_calls_are_bound_by_launches() -> None:
    """The device waits for the host: the step takes what the host does."""
    step = walked(*kernels(SMALL, 500))
    assert step.bound == "launch"
    assert step.seconds == pytest.approx(500 * HOST)
    assert step.low < step.seconds < step.high
    assert (step.calls, step.predicted, step.left_out) == (500, 500, ())


@pytest.mark.parametrize(("call", "bound"), [(LARGE, "compute"), (WIDE, "bandwidth")])
def test_large_calls_are_bound_by_the_device(call: OperatorCall, bound: str) -> None:
    """The host is far ahead: the step takes what the device does."""
    step = walked(*kernels(call, 10))
    assert step.bound == bound
    assert step.seconds == pytest.approx(10 * predict_operator(call, M1, TORCH).device)
    assert step.device == pytest.approx(step.seconds)


def test_a_wait_holds_the_host_up() -> None:
    """At the end of a step: the device is idle while the host wakes up and queues the next kernel."""
    wait = Happening("wait", waits=True, part="loss read", place="train.py:36")
    step = walked(*kernels(LARGE, 10), wait)
    assert step.seconds == pytest.approx(10 * DEVICE + WAIT + GRAPH)
    assert step.bound == "compute"
    assert [(cost.place, cost.waits) for cost in step.waits] == [("train.py:36", 1)]
    assert step.waits[0].seconds == pytest.approx(WAIT + GRAPH)
    assert step.all_waits == pytest.approx(WAIT + GRAPH)
    assert dict(step.shares)["waits"] == pytest.approx(WAIT)
    assert step.parts["forward"] == pytest.approx(10 * DEVICE + GRAPH)
    assert step.parts["loss read"] == pytest.approx(WAIT)


def test_waits_after_every_call_bind_a_step() -> None:
    """Two lines wait in turns: without one of them half of the waits are left."""
    calls = [
        wait
        for number in range(100)
        for wait in (*kernels(SMALL, 1), Happening("wait", waits=True, place="a" if number % 2 else "b"))
    ]
    step = walked(*calls)
    assert step.bound == "waits"
    assert step.seconds > 100 * WAIT
    assert [wait.waits for wait in step.waits] == [50, 50]
    assert step.waits[0].seconds == pytest.approx(50 * WAIT, rel=0.1)
    assert step.seconds - step.all_waits == pytest.approx(100 * HOST)


def test_a_copy_takes_a_blit_and_its_bytes() -> None:
    """A blocking one waits too; without the wait it is still a copy."""
    copy = Happening("copy", moved=50_000_000, waits=True, place="a")
    blocking = walked(*kernels(SMALL, 1), copy)
    free = walked(*kernels(SMALL, 1), copy._replace(waits=False))
    assert blocking.bound == free.bound == "copies"
    assert free.seconds == pytest.approx(HOST + 20e-6 + 2**20 / 50e9 + (50_000_000 - 2**20) / 7e9)
    assert blocking.seconds == pytest.approx(free.seconds + WAIT + predict_operator(SMALL, M1, TORCH).device)
    assert blocking.seconds - blocking.all_waits == pytest.approx(free.seconds)
    assert blocking.seconds - blocking.saved({"a"}) == pytest.approx(free.seconds)
    assert blocking.seconds - blocking.saved({"a"}, gone={"a"}) == pytest.approx(HOST)
    assert blocking.saved({"b"}) == pytest.approx(0)


def test_a_fallback_stops_the_device() -> None:
    """The host waits, copies, computes for 30 ms and waits for the copy back; the GPU would take a part of it."""
    fallback = Happening("fallback", LARGE, work=30e-3, moved=50_000_000, waits=True, place="model.py:19")
    step = walked(*kernels(LARGE, 2), fallback)
    assert step.bound == "CPU fallback"
    copied = transfer_seconds(50_000_000)
    assert step.seconds == pytest.approx(2 * DEVICE + 2 * WAIT + 20e-6 + copied + 30e-3 + GRAPH)
    assert step.waits[0].seconds == pytest.approx(step.seconds - 3 * DEVICE)
    assert step.high / step.low > 1.2 * walked(*kernels(LARGE, 2)).high / walked(*kernels(LARGE, 2)).low


def test_a_fallback_that_was_not_seen_is_estimated_or_left_out() -> None:
    """A product of matrices has a class; a singular value decomposition has none."""
    step = walked(Happening("fallback", LARGE, waits=True))
    assert step.seconds > 2 * 2048**3 / 1.5e12
    unknown = OperatorCall("aten::linalg_svd", (SIDE,), (SIDE,))
    step = walked(*kernels(SMALL, 9), Happening("fallback", unknown, waits=True))
    assert (step.calls, step.predicted) == (10, 9)
    assert step.left_out == (("aten::linalg_svd runs on the CPU, and its time was not seen", 1),)


@pytest.mark.parametrize(("predicted", "covered"), [(9, True), (8, False)])
def test_a_step_is_told_where_nine_of_ten_calls_have_a_time(predicted: int, covered: bool) -> None:
    """With fewer the rest could be most of it."""
    unknown = OperatorCall("aten::linalg_svd", (SIDE,), (SIDE,))
    step = walked(*kernels(SMALL, predicted), *kernels(unknown, 10 - predicted))
    assert (step.calls, step.predicted, step.covered) == (10, predicted, covered)


def test_a_loader_binds_a_step() -> None:
    """40 ms for a batch; a faster CPU takes less."""
    calls = (Happening("batch", work=40e-3, part="batch"), *kernels(LARGE, 2))
    step = walked(*calls)
    assert step.bound == "loading"
    assert step.seconds == pytest.approx(40e-3 + 2 * GRAPH)
    assert step.parts["batch"] == pytest.approx(40e-3)
    assert walked(Happening("batch", work=1.01 * 2 * DEVICE), *kernels(LARGE, 2)).bound == "loading"
    assert walked(Happening("batch", work=0.9 * 2 * DEVICE), *kernels(LARGE, 2)).bound == "compute"
    assert walked(*calls, mac="M4 Max 64GB").seconds < 0.7 * step.seconds


def test_the_programs_own_code_keeps_the_device_waiting() -> None:
    """2 ms of Python before each call come on top of the dispatch, but for what a timed dispatch has of it, too."""
    step = walked(*(kernel._replace(host_code=2e-3) for kernel in kernels(SMALL, 10)))
    assert step.bound == "host code"
    assert step.seconds == pytest.approx(10 * (2e-3 - CALL + HOST))
    bare = walked(*(kernel._replace(host_code=CALL) for kernel in kernels(SMALL, 10)))
    assert bare.seconds == pytest.approx(10 * HOST)


def test_one_image_through_a_network_is_bound_by_launches() -> None:
    """Convolutions and norms of one image: public profiles of such networks have 23 to 43 us a call."""
    image, weight, channel = "float32[1, 64, 28, 28]", "float32[64, 64, 3, 3]", "float32[64]"
    texts = (
        f"aten::convolution({image}, {weight}) -> ({image})",
        f"aten::native_batch_norm({image}, {channel}, {channel}) -> ({image}, {channel}, {channel})",
        f"aten::relu({image}) -> ({image})",
    )
    calls = [Happening("kernel", OperatorCall.parse(text), host_code=5e-6) for text in texts]
    for mac, torch in (("M2 Pro 32GB", "2.8"), ("M4 Pro 24GB", "2.9"), ("M5 24GB", "2.13")):
        step = walk_step(calls * 50, parse_mac(mac), torch)
        assert step.bound == "launch"
        assert 20e-6 < step.seconds / 150 < 43e-6


def test_all_of_the_time_has_a_reason() -> None:
    """Shares and parts each add up to the step, and the tracks lie one after the other."""
    everything = (
        Happening("batch", work=1e-3, part="batch"),
        Happening("copy", moved=1_000_000, waits=True, part="move", place="a"),
        *kernels(SMALL, 40),
        *kernels(LARGE, 1),
        Happening("view", SMALL, part="forward"),
        Happening("fallback", SMALL, work=1e-3, waits=True, part="forward", place="b"),
        *(kernel._replace(host_code=1e-4, part="backward") for kernel in kernels(SMALL, 30)),
        Happening("wait", waits=True, part="loss read", place="c"),
    )
    step = walk_step(everything, M1, TORCH)
    assert sum(seconds for _, seconds in step.shares) == pytest.approx(step.seconds)
    assert sum(step.parts.values()) == pytest.approx(step.seconds)
    for track in (step.host_track, step.device_track):
        assert len(track) > 30
        assert all(a.end <= b.start + 1e-12 for a, b in pairwise(track))


def test_a_wait_is_drawn_from_when_the_device_is_done() -> None:
    """Until the host goes on; what follows is drawn behind it."""
    step = walked(*kernels(LARGE, 2), Happening("wait", waits=True, place="a"), *kernels(SMALL, 1))
    (wait,) = (busy for busy in step.host_track if busy.what == "waits")
    assert (wait.start, wait.end) == pytest.approx((step.device_track[1].end, step.device_track[1].end + WAIT))
    assert step.host_track[-1].start == pytest.approx(wait.end)


def test_graphs_to_compile_are_counted() -> None:
    """One for each operator and its tensors, whatever it is called for; a kernel of PyTorch's own has none."""
    other = OperatorCall("aten::mm", ("float32[64, 64]",) * 2, ("float32[64, 64]",))
    calls = (*kernels(LARGE, 3), *kernels(replace(LARGE), 2), *kernels(other, 1), *kernels(SMALL, 5))
    assert walked(*calls).graphs == 2
    assert walk_step(calls, M1, "2.11").graphs == 3  # `relu` was a graph


def test_both_graphs_of_a_gradient_are_counted() -> None:
    """MPS has one for the input and one for the weight."""
    texts = ("float32[32, 64]", "float32[32, 10]", "float32[10, 64]")
    gradient = OperatorCall("aten::linear_backward", texts, (texts[0], texts[2], "float32[10]"))
    assert walked(*kernels(gradient, 3)).graphs == 2


def test_the_interval_goes_by_what_binds_the_step() -> None:
    """The GPU's share has the interval of steps that the GPU decides, the host's that of the others."""
    gpu, host = (walk_step([Happening("kernel", call)] * 50, M1, TORCH) for call in (WIDE, SMALL))
    known = shipped().intervals
    assert (gpu.bound, host.bound) == ("bandwidth", "launch")
    assert (gpu.low / gpu.seconds, gpu.high / gpu.seconds) == pytest.approx(known["step, GPU"], rel=0.01)
    assert (host.low / host.seconds, host.high / host.seconds) == pytest.approx(known["step, host"], rel=0.01)


def test_a_class_that_was_not_timed_on_the_chip_widens_the_interval() -> None:
    """By what timings on chips that were left out are off more than others."""
    assert "Apple M1" in shipped().chips["gemm"]
    assert shipped().new_chip > 0.1
    unlike = replace(shipped(), chips={**shipped().chips, "gemm": frozenset({"Apple M3"})})
    steps = [walked_step(kernels(LARGE, 50), M1, torch_release(TORCH), known) for known in (shipped(), unlike)]
    log = [math.log(step.high / step.seconds) for step in steps]
    assert log[1] == pytest.approx(math.hypot(log[0], shipped().new_chip), rel=0.01)
    assert steps[0].between == steps[1].between


def test_waits_are_known_less_well_and_widen_the_interval() -> None:
    """By their share of the step."""
    happenings = [Happening("kernel", SMALL), Happening("wait", waits=True)] * 50
    waited = walk_step(happenings, M1, TORCH)
    measured = replace(shipped(), intervals={**shipped().intervals, "wait": (1.0, 1.0)})
    known = walked_step(happenings, M1, torch_release(TORCH), measured)
    share = dict(waited.shares)["waits"] / waited.seconds
    assert share > 0.5
    assert known.seconds == waited.seconds
    log = [math.log(time.high / time.seconds) for time in (waited, known)]
    assert log[0] == pytest.approx(math.hypot(log[1], share * math.log(shipped().intervals["wait"][1])), rel=0.01)
    assert waited.between > known.between


@pytest.mark.parametrize(
    ("shares", "busy", "expected"),
    [
        ({"launch": 2.0, "compute": 1.0, "bandwidth": 1.0, "waits": 4.0}, 0.0, 0.3 * 0.5),
        ({"host code": 1.0, "loading": 3.0, "waits": 4.0}, 0.0, _WIDER_FOR_HOST_CODE * 0.5),
        ({"CPU fallback": 1.0, "waits": 3.0}, 0.0, _WIDER_FOR_FALLBACKS * 0.25),
        ({"host code": 1.0, "CPU fallback": 1.0}, 0.5, math.hypot(0.45, 0.25, math.log(2))),
        ({"launch": 1.0, "host code": 1.0}, 1.0, math.hypot(0.15, 0.25, 0.5 * math.log(10))),
        ({}, 0.5, 0.0),
    ],
)
def test_each_part_widens_the_interval_by_its_share(
    shares: dict[StepBound, float], busy: float, expected: float
) -> None:
    """The classes' own interval counts for what they predict; code, fallbacks and a busy machine have theirs."""
    assert _widening(shares, 0.3, busy) == pytest.approx(expected)


def test_a_call_without_a_time_takes_its_dispatch() -> None:
    """The host's, and nothing of the GPU."""
    step = walked(*kernels(OperatorCall("aten::linalg_svd", (SIDE,), (SIDE,)), 2))
    dispatch = dispatch_seconds(None, M1, torch_release(TORCH), shipped())
    assert step.seconds == pytest.approx(2 * dispatch)
    assert len(step.device_track) == 0


def test_nothing_takes_no_time() -> None:
    """An empty step is bound by nothing; a Mac without rates has none."""
    step = walked()
    assert (step.seconds, step.bound, step.calls) == (0, "nothing", 0)
    with pytest.raises(CostError, match="its GPU clock is not public"):
        walked(mac="MacBook Neo")


def test_a_call_seen_before_costs_what_a_new_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of many calls is priced by its distinct ones, whatever code of the program comes before each."""
    priced: list[Happening] = []
    price = _Book._move

    def counted(self: _Book, happening: Happening) -> Move:
        priced.append(happening)
        return price(self, happening)

    monkeypatch.setattr(_Book, "_move", counted)
    codes = [0.0, HOST / 2, 3 * HOST, 0.0, 40 * HOST] * 20
    waits = [number % 7 == 3 for number in range(len(codes))]
    rows = list(zip((SMALL, LARGE, WIDE) * 40, codes, waits, strict=False))
    again = [Happening("kernel", call, code, waits=wait, place=wait) for call, code, wait in rows]
    new = [happening._replace(call=replace(happening.call)) for happening in again if happening.call is not None]
    first = walk_step(again, M1, TORCH)
    assert len(priced) == 6  # three calls, with a wait and without
    priced.clear()
    second = walk_step(new, M1, TORCH)
    assert second == first
    assert (second.host_track, second.device_track) == (first.host_track, first.device_track)
    assert len(priced) == len(rows) == 100
