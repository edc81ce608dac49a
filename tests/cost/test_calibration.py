"""Calibration to one machine: planted timings give back what was planted, and a file with nonsense changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anymps import CostError, parse_mac
from anymps.cost import Happening, OperatorCall, predict_operator, shipped, walk_step
from anymps.cost.calibration import (
    Calibration,
    Timed,
    calibrated,
    calibration_path,
    date_in_words,
    expected_seconds,
    fit,
    keep_calibration,
    refusal,
)
from anymps.forecast import forecast
from timed_steps import Steps

MAC = parse_mac("M3 Pro 18GB")
HOST, OWN = shipped().host["2.10"], shipped().kernel_host
TORCH = "2.13.0"
DAY = "2026-11-14"
TOLD = "Calibrated on this machine, 14 Nov 2026."

ADD = "aten::add.Tensor({0}, {0}) -> ({0})"
BIG = "float32[4096, 4096]"
TINY = OperatorCall.parse(ADD.format("float32[1]"))
PRODUCT = OperatorCall.parse(f"aten::mm({BIG}, {BIG}) -> ({BIG})")
HALF = OperatorCall.parse("aten::mm({0}, {0}) -> ({0})".format("float16[4096, 4096]"))
SUM = OperatorCall.parse(ADD.format(BIG))
SOFTMAX = OperatorCall.parse(f"aten::_softmax({BIG}) -> ({BIG}) {{axis=-1}}")
VIEW = OperatorCall.parse("aten::view(float32[4]) -> (float32[2, 2])")
SMALL_COPY = OperatorCall.parse("aten::_to_copy(float32[1] on cpu) -> (float32[1])")
LARGE_COPY = OperatorCall.parse(f"aten::_to_copy({BIG} on cpu) -> ({BIG})")
BACK = OperatorCall.parse("aten::_to_copy(float32[1]) -> (float32[1] on cpu)")
GRAPH = OperatorCall.parse("aten::threshold_backward({0}, {0}) -> ({0})".format("float32[1]"))
PIPED = (TINY, GRAPH, PRODUCT, HALF, SUM, SOFTMAX, VIEW, SMALL_COPY, LARGE_COPY)


def planted() -> Calibration:
    """A machine that is unlike the shipped coefficients in everything that is fitted."""
    stock = fit(timings(shipped()), MAC, TORCH, DAY, shipped())
    return replace(
        stock,
        microseconds={"host": 9.0, "kernel_host": 4.0, "view": 2.0, "wait": 210.0},
        transfer=stock.transfer._replace(latency=80e-6, rate=30e9),
        classes={**stock.classes, "gemm": 1.2, "elementwise": 1.1, "softmax": 1.7},
        dtypes={"float16": 1.3},
    )


def timings(coefficients: object) -> list[Timed]:
    """What a machine with these coefficients would be timed at."""
    calls = [(call, "pipe") for call in PIPED] + [(TINY, "sync"), (BACK, "sync")]
    return [Timed(call, mode, expected_seconds(call, mode, MAC, TORCH, coefficients)) for call, mode in calls]


def test_shipped_coefficients_give_themselves_back() -> None:
    """Timings of a machine that is as predicted: all factors are 1."""
    found = fit(timings(shipped()), MAC, TORCH, DAY, shipped())
    assert (found.chip, found.gpu_cores, found.torch, found.date) == ("M3 Pro", 18, "2.13", DAY)
    assert set(found.classes) == {*shipped().matrix, *shipped().kernel}
    assert [*found.classes.values(), *found.dtypes.values()] == pytest.approx([1.0] * (len(found.classes) + 1))
    assert found.microseconds == pytest.approx({"host": HOST, "kernel_host": OWN, "view": 3.0, "wait": shipped().wait})
    assert found.transfer == pytest.approx((20e-6, 50e9), rel=1e-4)
    assert found.timings == {"gemm": 1, "elementwise": 1, "softmax": 1}


def test_planted_coefficients_come_back() -> None:
    """Host, view, wait, transfers, classes and a dtype; a class that was not timed has the median of its like."""
    plant = planted()
    found = fit(timings(calibrated(shipped(), plant)), MAC, TORCH, DAY, shipped())
    assert found.microseconds == pytest.approx(plant.microseconds, rel=1e-3)
    assert found.transfer == pytest.approx(plant.transfer, rel=1e-4)
    measured = {kind: found.classes[kind] for kind in ("gemm", "elementwise", "softmax")}
    assert measured == pytest.approx({"gemm": 1.2, "elementwise": 1.1, "softmax": 1.7})
    assert found.dtypes == pytest.approx({"float16": 1.3})
    assert found.classes["conv"] == pytest.approx(1.2)
    assert found.classes["sort"] == pytest.approx((1.1 + 1.7) / 2)


def test_dispatches_that_were_not_timed_are_as_slow_as_the_others() -> None:
    """Graphs and PyTorch's own kernels are dispatched by the same core: half as fast here, without a timing of one."""
    slow = replace(planted(), microseconds={"host": 2 * HOST, "kernel_host": 2 * OWN, "view": 2.0, "wait": 210.0})
    rows = timings(calibrated(shipped(), slow))
    for missed in (GRAPH, TINY):
        left = [row for row in rows if row.call is not missed or row.mode == "sync"]
        assert fit(left, MAC, TORCH, DAY, shipped()).microseconds == pytest.approx(slow.microseconds, rel=0.01)


def test_what_the_device_is_busy_with_says_nothing_of_the_host() -> None:
    """A kernel as long as its dispatch: three timings of it that are three times too long change its class alone."""
    call = OperatorCall.parse(ADD.format("float32[256, 128]"))
    dispatch = expected_seconds(TINY, "pipe", MAC, TORCH, shipped())
    alone = expected_seconds(call, "pipe", MAC, TORCH, shipped())
    assert 0.7 * dispatch < alone < 3 * dispatch
    rows = timings(shipped())
    known = fit(rows, MAC, TORCH, DAY, shipped()).microseconds
    assert fit([*rows, *[Timed(call, "pipe", 3 * alone)] * 3], MAC, TORCH, DAY, shipped()).microseconds == known


def test_a_blocking_copy_may_be_as_quick_as_a_wait() -> None:
    """What is left of it without the wait is next to nothing, not what is shipped."""
    quick = [Timed(call, "sync", 0.9e-6 * shipped().wait) for call in (SMALL_COPY, BACK)]
    rows = [row for row in timings(shipped()) if row.call not in (SMALL_COPY, BACK)] + quick
    assert fit(rows, MAC, TORCH, DAY, shipped()).transfer.latency == 1e-6


def test_one_wrong_timing_of_three_moves_nothing() -> None:
    """Medians: the third timing of the same class is ten times off."""
    rows = timings(shipped())
    rows += [row for row in rows if row.call is SUM]
    rows.append(Timed(SUM, "pipe", 10 * rows[-1].seconds))
    assert fit(rows, MAC, TORCH, DAY, shipped()).classes["elementwise"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"paged": True}, "the Mac was swapping memory to disk"),
        ({"spread": 0.4}, "the middle half of its runs spreads over 40 % (at most 15 %)"),
        ({"seconds": 0.0}, "it took no time"),
        ({"seconds": 3.0}, "it took {:.3g} times what is predicted"),
        (
            {"call": OperatorCall.parse("aten::fft(float32[4]) -> (float32[4])")},
            "aten::fft has no class of cost: its time is not predicted",
        ),
    ],
)
def test_what_tells_nothing_is_refused(change: dict[str, object], why: str) -> None:
    """Each with its reason; a good timing has none."""
    good = Timed(SUM, "pipe", expected_seconds(SUM, "pipe", MAC, TORCH, shipped()))
    assert refusal(good, MAC, TORCH, shipped()) == ""
    assert refusal(good._replace(**change), MAC, TORCH, shipped()) == why.format(3.0 / good.seconds)


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (19.0, ""),
        (21.0, "it took 21 times what is predicted"),
        (1 / 19, ""),
        (1 / 21, "it took 0.0476 times what is predicted"),
    ],
)
def test_a_timing_of_something_else_is_refused(factor: float, why: str) -> None:
    """More than 20 times the prediction, or less than a twentieth of it."""
    seconds = factor * expected_seconds(SUM, "pipe", MAC, TORCH, shipped())
    assert refusal(Timed(SUM, "pipe", seconds), MAC, TORCH, shipped()) == why


def test_too_few_timings_are_no_calibration() -> None:
    """Half refused, or nothing about the host or a wait."""
    rows = timings(shipped())
    noisy = [row._replace(spread=0.5) for row in rows[:6]]
    with pytest.raises(CostError, match=r"^anymps: only 5 of 11 timings can be used: calibrate again on an idle Mac$"):
        fit([*noisy, *rows[6:]], MAC, TORCH, DAY, shipped())
    for mode, what in (("pipe", "a dispatch"), ("sync", "a wait")):
        left = [row for row in rows if row.call not in (TINY, GRAPH) or row.mode != mode]
        with pytest.raises(CostError, match=rf"^anymps: no timing of {what} can be used: calibrate again"):
            fit(left, MAC, TORCH, DAY, shipped())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a calibration, in a cache directory of its own."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    path = calibration_path(MAC, TORCH)
    assert path == tmp_path / "calibration" / "m3-pro-18-torch-2.13.json"
    keep_calibration(planted(), path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    return path


def test_predictions_use_it_and_say_so(kept: Path) -> None:
    """Of that chip and release: an operator, a step, a recording's forecast; of no other."""
    time = predict_operator(SUM, MAC, TORCH)
    assert time.calibration == TOLD
    stock = replace(MAC, gpu_cores=14)
    for mac, torch in ((stock, TORCH), (MAC, "2.12.1")):
        assert predict_operator(SUM, mac, torch).calibration == ""
    assert time.device == pytest.approx(1.1 * predict_operator(SUM, MAC, "2.12.1").device, rel=0.01)
    waiting = [Happening("kernel", PRODUCT), Happening("wait", waits=True)]
    step, before = (walk_step(waiting, MAC, torch) for torch in (TORCH, "2.12.1"))
    assert (step.calibration, before.calibration) == (TOLD, "")
    assert step.seconds > 1.15 * before.seconds
    steps = Steps()
    for _ in range(3):
        steps.product(10)
        steps.end()
    assert forecast(steps.close()).sentence.endswith(f", bound by compute. {TOLD}")


def written(path: Path, **changes: object) -> str:
    """The whole content with changes, as text."""
    return json.dumps({**json.loads(path.read_text()), **changes})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"classes": {"gemm": -1.0}}, "its classes say -1.0 for gemm"),
        ({"classes": {"gemm": float("inf")}}, "its classes say inf for gemm"),
        ({"classes": {"gemm": True}}, "its classes say True for gemm"),
        ({"classes": {"warp": 1.0}}, "its classes hold 'warp'"),
        ({"microseconds": None}, "it has no microseconds"),
        ({"transfer": {"latency": 1e-4}}, "its transfer is incomplete"),
        ({"torch": "2.11"}, "it was made with torch 2.11"),
        ({"chip": "M1"}, "it is of an M1 with 18 GPU cores"),
        ({"coefficients": "0"}, "another version of anymps made it, calibrate again"),
        ({"date": "soon"}, "it has no date"),
        ({"format": "other"}, "it is not of the format anymps-calibration 1"),
    ],
)
def test_nonsense_changes_no_number(kept: Path, changes: dict[str, object], why: str) -> None:
    """The shipped coefficients, and one sentence that says why."""
    before = predict_operator(SUM, MAC, "2.12.1")
    kept.write_text(written(kept, **changes))
    time = predict_operator(SUM, MAC, TORCH)
    assert time.device == before.device
    assert time.calibration == f"The calibration m3-pro-18-torch-2.13.json is not used: {why}."


@pytest.mark.parametrize("content", [b"", b'{"format": "anymps-cal', b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_not_whole_changes_no_number(kept: Path, content: bytes) -> None:
    """Cut short, something else, bytes that are no text."""
    before = predict_operator(SUM, MAC, "2.12.1")
    kept.write_bytes(content)
    time = predict_operator(SUM, MAC, TORCH)
    assert time.device == before.device
    assert time.calibration.startswith("The calibration m3-pro-18-torch-2.13.json is not used: it is ")


def test_a_day_in_words() -> None:
    """Months by their names, and a text that is no date."""
    assert [date_in_words(f"2026-{month:02}-09") for month in (1, 2, 3, 4, 11, 12)] == [
        "9 Jan 2026", "9 Feb 2026", "9 Mar 2026", "9 Apr 2026", "9 Nov 2026", "9 Dec 2026",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="Invalid isoformat string: 'soon'"):
        date_in_words("soon")
