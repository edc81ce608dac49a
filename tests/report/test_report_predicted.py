"""What a report says of the predicted time of a step: a sentence and JSON, or nothing where too little is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from anymps import parse_mac
from anymps.cost import OperatorCall, predict_operator
from anymps.findings import RULES, Story
from anymps.forecast import try_forecast
from anymps.record import Fate, Phase, Recording, RecordingBuilder, Site, Wait
from anymps.report import (
    compare,
    diff_document,
    render_summary,
    render_terminal,
    rendered,
    report_pieces,
)
from anymps.report._predicted import predicted_sentence
from recordings import META
from timed_steps import Steps

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
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


def words(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


def test_a_step_is_predicted_on_the_mac_of_the_run() -> None:
    """Its bin too, which the short name leaves out; torch is that of the run."""
    details = "Apple M3 Pro (14-core GPU), 18 GB, macOS 26.4: working set 13.32 GiB"
    made = recording(20, 0, mac_details=details)
    time = try_forecast(made)
    assert time is not None
    one = predict_operator(PRODUCT, parse_mac("M3 Pro 14-core GPU 18GB"), "2.13")
    assert time.mac == parse_mac("M3 Pro 14-core GPU 18GB")
    assert time.time.device == pytest.approx(19 * one.device)
    assert (time.time.calls, time.time.predicted, time.bound) == (19, 19, "compute")
    shown = predicted_sentence(Story.of(made))
    assert shown == "A step would take about 82.4 ms on an M3 Pro 18GB (55.7 to 122 ms), bound by compute."
    assert shown in render_terminal(Story.of(made), []).replace("\n", " ")
    assert "A step: about 82.4 ms (55.7 to 122 ms), bound by compute." in render_summary(Story.of(made), []).replace(
        "\n", " "
    )
    assert shown.replace("'", "&#39;") in "".join(report_pieces("html", Story.of(made), []))
    report = json.loads("".join(report_pieces("json", Story.of(made), [])))
    assert report["predicted_step"]["seconds"] == time.time.seconds
    assert report["predicted_step"]["bound"] == "compute"
    assert report["predicted_step"]["left_out"] == []
    assert report["predicted_step"]["graphs"] == 1
    said = "The first step there also compiles a graph, about 2.12 ms (1.61 to 4.91 ms). These times leave that out."
    assert said in words(render_terminal(Story.of(made), []))
    assert "also compiles a graph" in "".join(report_pieces("html", Story.of(made), []))


def test_what_stops_on_a_mac_takes_no_time_there() -> None:
    """The short report leaves the time out where a finding says that the script stops."""
    made = recording(20, 0)
    stopped = RULES["MPS802"].finding(Site("train.py", 9), what="", count=1)
    assert "A step: about" in render_summary(Story.of(made), [])
    assert "A step: about" not in render_summary(Story.of(made), [stopped])


def test_the_step_table_has_a_column_of_the_macs_time() -> None:
    """In the terminal and on the page; without a prediction there is no such column."""
    made, without = recording(20, 0), recording(8, 2)
    assert "on the Mac" in render_terminal(Story.of(made), [])
    assert ">on the Mac</th>" in "".join(report_pieces("html", Story.of(made), []))
    assert "On the Mac: what a phase adds to the predicted step of an M3 Pro 18GB." in render_terminal(
        Story.of(made), []
    )
    shown = render_terminal(Story.of(made), [], brief=True)
    assert ("on the Mac" in shown, "share" in shown, "first step" in shown) == (True, False, True)
    assert "on the Mac" not in render_terminal(Story.of(without), [])
    assert ">on the Mac</th>" not in "".join(report_pieces("html", Story.of(without), []))


@pytest.mark.parametrize(
    ("known", "unknown", "meta", "reason"),
    [
        (
            8,
            2,
            {},
            "No time can be predicted for this Mac: only 7 of the step's 9 calls have a predicted time (missing: 2 of "
            "aten::linalg_svd).",
        ),
        (10, 0, {"torch_version": ""}, "No time can be predicted: the recording does not say which torch made it."),
        (
            10,
            0,
            {"mac": "MacBook Neo", "mac_details": ""},
            "No time can be predicted for Apple A18 Pro: its GPU clock is not public.",
        ),
        (10, 0, {"mac": "", "mac_details": ""}, "No time can be predicted: the recording names no known Mac."),
    ],
    ids=["too many calls without a class", "no torch", "no rates", "no Mac"],
)
def test_without_ground_a_sentence_says_why(known: int, unknown: int, meta: dict[str, object], reason: str) -> None:
    """In the terminal, on the page and in JSON, which has null for the number; the short report has none of it."""
    made = recording(known, unknown, **meta)
    assert try_forecast(made) is None
    assert predicted_sentence(Story.of(made)) == reason
    assert render_terminal(Story.of(made), []).replace("\n", " ").count(reason) == 1
    assert "".join(report_pieces("html", Story.of(made), [])).count(reason.replace("'", "&#39;")) == 1
    report = json.loads("".join(report_pieces("json", Story.of(made), [])))
    assert (report["predicted_step"], report["no_predicted_step"]) == (None, reason)
    assert "o time is" not in render_summary(Story.of(made), [])


def test_one_step_alone_tells_programs_what_the_gpu_does() -> None:
    """The host's time, and what it makes of the step, would be that of imports and of the making of the model."""
    steps = Steps()
    steps.product(10, gap=500_000_000)
    steps.end()
    made = steps.close()
    report = json.loads("".join(report_pieces("json", Story.of(made), [])))
    jsonschema.validate(report, json.loads((SCHEMAS / "report-1.json").read_text(encoding="utf-8")))
    step = report["predicted_step"]
    assert (step["seconds"], step["host_seconds"], step["shares"], step["phases"]) == (None, None, [], [])
    assert step["device_seconds"] > 0
    assert step["no_time"].startswith("No time is predicted from a single step")


def test_a_run_without_steps_needs_no_reason() -> None:
    """No loop came round: there is no step of which a time could be told."""
    made = RecordingBuilder(meta=META).close()
    assert predicted_sentence(Story.of(made)) == ""
    report = json.loads("".join(report_pieces("json", Story.of(made), [])))
    assert (report["predicted_step"], report["no_predicted_step"]) == (None, "")


def test_a_step_without_work_for_the_gpu_has_no_time() -> None:
    """Its one call runs on the CPU instead."""
    builder = RecordingBuilder(meta=META)
    for step in range(3):
        builder.entry(
            "aten::mm", start_ns=step * 1_000_000, duration_ns=500, inputs=(SIDE, SIDE), outputs=(SIDE,),
            fate=Fate.FALLBACK, wait=Wait.FALLBACK,
        )  # fmt: skip
        builder.end_step((step + 1) * 1_000_000)
    assert (
        predicted_sentence(Story.of(builder.close()))
        == "No time can be predicted for this Mac: nothing in the step works on its GPU."
    )


def test_a_few_calls_may_be_unknown() -> None:
    """One in eleven: the number stands, and JSON tells what it leaves out."""
    report = json.loads("".join(report_pieces("json", Story.of(recording(10, 1)), [])))
    reason = "aten::linalg_svd has no class of cost: its time is not predicted"
    assert report["predicted_step"]["left_out"] == [{"reason": reason, "calls": 1}]


def test_a_comparison_has_the_macs_times() -> None:
    """Before and after by phase, where both recordings have a time."""
    before, after, without = recording(20, 0), recording(10, 0), recording(8, 2)
    diff = compare(Story.of(before), Story.of(after), [], [])
    shown = "".join(rendered(diff_document(diff), "terminal"))
    (whole,) = (line for line in shown.splitlines() if line.strip().startswith("whole step"))
    assert "on the Mac  its ratio" in shown
    assert whole.rstrip().endswith("64.8 ms -> 30.8 ms       0.48")
    verdicts = [
        diff_document(compare(Story.of(first), Story.of(second), [], [])).verdict.partition(" No findings")[0]
        for first, second in ((before, after), (after, before), (before, before), (before, without))
    ]
    assert verdicts == [
        "64.8 ms -> 30.8 ms a step on the Mac, 2.10 times as fast.",
        "30.8 ms -> 64.8 ms a step on the Mac, 2.10 times as long.",
        "64.8 ms a step on the Mac, as before.",
        "No findings in either recording.",
    ]
    assert ">on the Mac</th>" in "".join(rendered(diff_document(diff), "html"))
    other = compare(Story.of(before), Story.of(without), [], [])
    assert "on the Mac" not in "".join(rendered(diff_document(other), "terminal"))


def test_the_page_begins_with_the_time_of_the_mac() -> None:
    """This machine's is in the table of the step alone."""
    for operator, first in (("aten::mm", "a step on the Mac"), ("aten::other", "its operators on mps")):
        steps = Steps(virtual=True)
        for _ in range(3):
            for _ in range(10):
                steps.entry(operator, 1000, inputs=(SIDE, SIDE), outputs=(SIDE,))
            steps.end()
        page = "".join(report_pieces("html", Story.of(steps.close()), []))
        names = re.findall(r"<dt>([^<]*)</dt>", page)
        assert names[0] == first
