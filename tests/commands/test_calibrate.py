"""`anymps bench --calibrate` with a planted clock: what it times, what it keeps and prints, and what it refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anymps import parse_mac
from anymps.commands import main
from anymps.commands.calibrate import _calibrate
from anymps.cost import OperatorCall, predict_operator, shipped
from anymps.cost.calibration import Calibration, Timed, calibrated, calibration_path, expected_seconds, fit
from anymps.train.timing import Stopwatch
from anymps.verify.cases import TIMED_CALLS, TimedCall, measure, prepare
from anymps.verify.cases._timed_calls import tensor
from processes import MAC as MAC_NAME

MAC = parse_mac(MAC_NAME)
TORCH = torch.__version__


class Clock:
    """Nanoseconds that go on only when something is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> int:
        return round(self.now)

    def watch(self) -> Stopwatch:
        """A stopwatch by this clock; nothing is waited for."""
        return Stopwatch(torch.device("mps"), self, lambda: None)


def plays(clock: Clock, seconds: Callable[[TimedCall], float]) -> Callable[[TimedCall, object], Callable[[], object]]:
    """What stands for `prepare`: a call that takes its time by the clock alone."""

    def prepared(case: TimedCall, _: object) -> Callable[[], object]:
        def once() -> None:
            clock.now += 1e9 * seconds(case)

        return once

    return prepared


@pytest.mark.parametrize("case", TIMED_CALLS, ids=lambda case: f"{case.text.partition('(')[0]} {case.mode}")
def test_each_case_is_the_call_that_its_text_says(case: TimedCall) -> None:
    """Made of tensors without data, it gives the results that stand there; and its time is predicted."""
    time = predict_operator(case.call, MAC, TORCH)
    if time.kind == "transfer":
        return
    inputs = [tensor(torch, text, "meta") for text in case.call.inputs]
    made = case.make(torch, inputs)
    results = [made] if isinstance(made, torch.Tensor) else [result for result in made if result is not None]
    texts = tuple(
        f"{str(result.dtype).removeprefix('torch.')}[{', '.join(map(str, result.shape))}]" for result in results
    )
    assert texts == (case.call.outputs or case.call.inputs[:1])


def test_most_classes_are_timed() -> None:
    """A class that no case is of has the median factor of the others."""
    timed = {predict_operator(case.call, MAC, TORCH).kind for case in TIMED_CALLS}
    missing = {"blit", "group_norm", "sort_outer", "conv_depthwise", "median", "grid_sample"}
    assert {*shipped().matrix, *shipped().kernel} - timed == missing


def test_median_and_spread_by_a_given_clock() -> None:
    """Nine runs, two of them slow: the median leaves them out; the spread is that of the middle half."""
    clock = Clock()
    case = TimedCall("aten::relu(float32[4]) -> (float32[4])", lambda *_: None)
    seconds = iter([1.0] * 6 + [0.1] + [0.10, 0.11, 0.10, 0.12, 0.10, 0.10, 0.9, 0.9, 0.10])
    pages = iter([5, 5])
    (found,) = measure([case], clock.watch(), plays(clock, lambda _: next(seconds)), lambda: next(pages))
    assert found.timed is not None
    assert (found.timed.call, found.timed.mode, found.timed.paged) == (case.call, "pipe", False)
    assert found.timed.seconds == pytest.approx(0.10)
    assert found.timed.spread == pytest.approx(0.2)


def test_short_calls_are_timed_many_at_once() -> None:
    """As many as a tenth of a second holds, and pages that were written are told."""
    clock, calls = Clock(), 0

    def seconds(_: TimedCall) -> float:
        nonlocal calls
        calls += 1
        return 1e-3

    pages = iter([5, 6])
    (found,) = measure([TIMED_CALLS[0]], clock.watch(), plays(clock, seconds), lambda: next(pages))
    assert found.timed is not None
    assert found.timed.paged
    assert calls == 3 + 3 + 10 * 100


def test_cases_run_on_the_device(mps_device: torch.device) -> None:
    """A product, a call that is waited for, a copy and a read, on the device."""
    product = "aten::mm(float32[4, 4], float32[4, 4]) -> (float32[4, 4])"
    cases = [TimedCall(product, lambda torch, t: torch.mm(*t)), *(case for case in TIMED_CALLS if "[1]" in case.text)]
    cases += [case for case in TIMED_CALLS if case.reads or "[64] on cpu" in case.text]
    for case in cases:
        assert prepare(case, mps_device)() is None


@pytest.fixture
def home(virtual_device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and a day that stands still."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_calibrate, "_today", lambda: "2026-11-14")
    return tmp_path


def planted() -> Calibration:
    """A machine whose host is slower, and whose kernels take a tenth longer, but products a quarter."""
    timed = [
        Timed(case.call, case.mode, expected_seconds(case.call, case.mode, MAC, TORCH, shipped()))
        for case in TIMED_CALLS
    ]
    stock = fit(timed, MAC, TORCH, "2026-11-14", shipped())
    classes = {kind: 1.25 if kind in shipped().matrix else 1.1 for kind in stock.classes}
    return replace(stock, classes=classes, microseconds={"host": 25.0, "kernel_host": 7.0, "view": 4.0, "wait": 200.0})


def test_the_whole_command(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What was planted is kept and printed; a call that torch refuses is one line; the rows are those of the data."""
    clock, machine = Clock(), calibrated(shipped(), planted())

    def seconds(case: TimedCall) -> float:
        if "sort" in case.text:
            raise NotImplementedError("no sort here\nand more")
        return expected_seconds(case.call, case.mode, MAC, TORCH, machine)

    monkeypatch.setattr(_calibrate, "_stopwatch", clock.watch)
    monkeypatch.setattr(_calibrate, "prepare", plays(clock, seconds))
    rows = home / "rows.csv"
    command = ["bench", "--calibrate", "--calibrate-virtual", MAC_NAME, "--out", str(rows)]
    assert main(command) == 0
    out, err = capsys.readouterr()
    path = calibration_path(MAC, TORCH)
    kept = json.loads(path.read_text())
    assert kept["microseconds"] == pytest.approx(planted().microseconds, rel=1e-3)
    measured = {kind: kept["classes"][kind] for kind in kept["timings"]}
    assert measured == pytest.approx({kind: planted().classes[kind] for kind in measured}, rel=1e-3)
    assert kept["date"] == "2026-11-14"
    head, _, columns, *table = out.splitlines()
    assert head.startswith("Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4: ")
    assert head.endswith(f", torch {TORCH}, 14 Nov 2026: 78 of 79 timings count.")
    assert columns.split() == ["timings", "measured", "/", "predicted", "off", "after", "calibration"]
    cells = {line[:20].strip(): line[20:].split() for line in table[: table.index("")]}
    nothing = (["0", "%"], ["<1", "%"])  # but for rounding
    assert (cells["gemm"][:2], cells["gemm"][2:] in nothing) == (["10", "1.25"], True)
    assert (cells["copy"][:2], cells["copy"][2:] in nothing) == (["2", "1.10"], True)
    assert cells["CPU to or from mps"][0] == "8"
    release = ".".join(TORCH.split(".")[:2])
    assert table[table.index("") + 1 :] == [
        f"Kept in {path}: from now on, times on an M3 Pro 18GB with torch {release} are predicted with it.",
        f"The timings are in {rows}.",
    ]
    assert (
        "anymps: aten::sort(float32[1024, 4096]) -> (float32[1024, 4096], int64[1024, 4096]) (pipe) does not count: "
        "no sort here\n"
    ) in err
    with rows.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert len(written) == 78 - 8 - 2  # copies and views are no kernels
    assert {**written[0], "milliseconds": ""} == {
        "source_url": "local",
        "chip": "M3 Pro",
        "gpu_cores": "18",
        "cores_stated": "yes",
        "torch": TORCH.partition("+")[0],
        "torch_stated": "yes",
        "mode": "pipe",
        "milliseconds": "",
        "calls": "aten::add.Tensor(float32[1], float32[1]) -> (float32[1])",
        "notes": "macOS 26.4, 2026-11-14, median of 9 runs, spread 0%",
    }
    known = {case.call for case in TIMED_CALLS}
    assert all(OperatorCall.parse(row["calls"]) in known for row in written)
    assert main(command) == 2
    assert capsys.readouterr().err == f"anymps: {rows} exists already\n"


def test_a_file_that_cannot_be_written_is_told_before_the_device_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it is known, too, whether this is a Mac."""
    monkeypatch.setattr(_calibrate, "_this_mac", lambda _: pytest.fail("the device is on"))
    rows = tmp_path / "rows.csv"
    rows.touch()
    assert main(["bench", "--calibrate", "--out", str(rows)]) == 2
    assert capsys.readouterr().err == f"anymps: {rows} exists already\n"


def test_a_noisy_machine_keeps_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every case is refused in one line, and nothing is written."""
    clock, calls = Clock(), 0

    def seconds(case: TimedCall) -> float:
        nonlocal calls
        calls += 1
        return 0.1 if calls % 2 else 0.3

    cases = TIMED_CALLS[:2]
    monkeypatch.setattr(_calibrate, "TIMED_CALLS", cases)
    monkeypatch.setattr(_calibrate, "_stopwatch", clock.watch)
    monkeypatch.setattr(_calibrate, "prepare", plays(clock, seconds))
    assert main(["bench", "--calibrate", "--calibrate-virtual", MAC_NAME, "--out", str(home / "rows.csv")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        *(
            f"anymps: {case.text} (pipe) does not count: the middle half of its runs spreads over 67 % (at most 15 %)"
            for case in cases
        ),
        "anymps: only 0 of 2 timings can be used: calibrate again on an idle Mac",
    ]
    assert not calibration_path(MAC, TORCH).exists()
    assert not (home / "rows.csv").exists()


def test_another_machine_is_no_mac(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the switch nothing is timed or kept; a script beside it, or a file without it, makes no sense."""
    for arguments, answer in (
        (
            ["--calibrate"],
            "this machine is not a Mac that anymps knows, so nothing is calibrated: "
            "run anymps bench --calibrate on the Mac itself",
        ),
        (["--calibrate", "train.py"], "--calibrate times the Mac itself, not train.py"),
        (["--out", "rows.csv", "train.py"], "--out is for --calibrate"),
    ):
        assert main(["bench", *arguments]) == 2
        assert capsys.readouterr().err == f"anymps: {answer}\n"
    assert not (home / "cache").exists()
