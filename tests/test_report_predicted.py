"""What a report says of the predicted time of a step: a sentence and JSON, or nothing where too little is known."""

from __future__ import annotations

import json

import pytest

from anymps import parse_mac
from anymps.cost import OperatorCall, predict_operator
from anymps.record import Fate, Phase, Recording, RecordingBuilder, Wait
from anymps.report import render_terminal, renderer
from anymps.report._predicted import predicted_sentence, predicted_step
from recordings import META

SIDE = "float32[2048, 2048]"
PRODUCT = OperatorCall("aten::mm", (SIDE, SIDE), (SIDE,))


def recording(known: int, unknown: int, **meta: object) -> Recording:
    """Three steps of `known` products, and of `unknown` calls of an operator without a class; the first call waits."""
    builder = RecordingBuilder(meta={**META, **meta})
    for step in range(3):
        start = step * 1_000_000
        for number in range(known + unknown):
            name = "aten::mm" if number < known else "aten::linalg_svd"
            builder.entry(
                name, start_ns=start + number * 1000, duration_ns=500, phase=Phase.FORWARD, inputs=(SIDE, SIDE),
                outputs=(SIDE,), fate=Fate.NATIVE, wait=Wait.ITEM if number == 0 else Wait.NONE,
            )  # fmt: skip
        builder.end_step(start + 1_000_000)
    return builder.close()


def test_a_step_is_predicted_on_the_mac_of_the_run() -> None:
    """Its bin too, which the short name leaves out; torch is that of the run."""
    details = "Apple M3 Pro (14-core GPU), 18 GB, macOS 26.4: working set 13.32 GiB"
    made = recording(20, 0, mac_details=details)
    time = predicted_step(made)
    assert time is not None
    one = predict_operator(PRODUCT, parse_mac("M3 Pro 14-core GPU 18GB"), "2.13")
    assert time.device == pytest.approx(20 * one.device)
    assert (time.calls, time.predicted, time.bound) == (20, 20, "compute")
    assert time.waits > 0
    shown = predicted_sentence(made)
    assert shown.startswith("A step would keep the GPU of an M3 Pro 18GB busy for about ")
    assert shown in render_terminal(made, []).replace("\n", " ")
    report = json.loads("".join(renderer("json").pieces(made, [])))
    assert report["predicted_step"]["device_seconds"] == time.device
    assert report["predicted_step"]["left_out"] == []


@pytest.mark.parametrize(
    ("known", "unknown", "meta"),
    [
        (8, 2, {}),
        (10, 0, {"torch_version": ""}),
        (10, 0, {"mac": "MacBook Neo", "mac_details": ""}),
        (10, 0, {"mac": "", "mac_details": ""}),
    ],
    ids=["too many calls without a class", "no torch", "no rates", "no Mac"],
)
def test_without_ground_there_is_no_number(known: int, unknown: int, meta: dict[str, object]) -> None:
    """Nothing is said, and JSON has null."""
    made = recording(known, unknown, **meta)
    assert predicted_step(made) is None
    assert predicted_sentence(made) == ""
    assert json.loads("".join(renderer("json").pieces(made, [])))["predicted_step"] is None


def test_a_few_calls_may_be_unknown() -> None:
    """One in eleven: the number stands, and JSON tells what it leaves out."""
    report = json.loads("".join(renderer("json").pieces(recording(10, 1), [])))
    reason = "aten::linalg_svd has no class of cost: its time is not predicted"
    assert report["predicted_step"]["left_out"] == [{"reason": reason, "calls": 1}]
