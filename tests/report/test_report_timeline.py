"""The timeline of a report: the typical step in the time of the Mac."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from anymps import parse_mac
from anymps.cost import OperatorCall, WalkedStep, predict_operator, walk_step
from anymps.findings import Story
from anymps.forecast import _forecast, forecast, timeline_of
from anymps.record import Direction, Fate, Phase, Recording, RecordingBuilder, Wait
from anymps.report import compare, diff_document, render_summary, render_terminal, report_pieces
from anymps.report import rendered as as_form
from anymps.report._timeline import time_section, timeline_section
from anymps.report.document import Drawing, Prose, Table
from recordings import META

SIDE = "float32[2048, 2048]"
ONE = predict_operator(OperatorCall("aten::mm", (SIDE, SIDE), (SIDE,)), parse_mac("M3 Pro 18GB"), "2.13").device
VALUE = "float32[]"


LOSS = "total += loss.item()"


def recording(
    products: int = 20,
    *,
    reads: bool = True,
    fallback: bool = False,
    line: str = LOSS,
    backward: str = "loss.backward()",
    side: str = SIDE,
    **meta: object,
) -> Recording:
    """Three steps of products, with a `line` at their end that reads a value, or a fallback in their middle."""
    builder = RecordingBuilder(meta={**META, **meta})
    site = builder.site("train.py", 12, "main", line)
    called = builder.site("train.py", 11, "main", backward)
    for step in range(3):
        start = step * 1_000_000
        for number in range(products):
            builder.entry(
                "aten::mm", start_ns=start + number * 1000, duration_ns=500, phase=Phase.FORWARD,
                inputs=(side, side), outputs=(side,), fate=Fate.NATIVE, site=called,
            )  # fmt: skip
            if fallback and number == products // 2:
                builder.entry(
                    "aten::cummax", start_ns=start + number * 1000 + 600, duration_ns=200, phase=Phase.FORWARD,
                    inputs=(VALUE,), outputs=(VALUE,), fate=Fate.FALLBACK, wait=Wait.FALLBACK, site=site,
                )  # fmt: skip
        if reads:
            builder.entry(
                "aten::_local_scalar_dense", start_ns=start + 900_000, duration_ns=500, phase=Phase.LOSS_READ,
                inputs=(VALUE,), fate=Fate.NATIVE, wait=Wait.ITEM, direction=Direction.MPS_TO_CPU, moved_bytes=4,
                site=site,
            )  # fmt: skip
        builder.end_step(start + 1_000_000)
    return builder.close()


def drawn(made: Recording) -> tuple[str, Mapping[str, Any], Table]:
    """The sentence, the drawing and the table of the timeline."""
    (section,) = timeline_section(Story.of(made))
    prose, drawing, table = section.blocks
    assert isinstance(prose, Prose) and isinstance(drawing, Drawing) and isinstance(table, Table)
    return prose.sentences[0], drawing.data, table


def lanes(made: Recording) -> dict[str, list[dict[str, Any]]]:
    """The spans of each lane of the drawing, by the first word of its title and what follows up to a bracket."""
    _, drawing, _ = drawn(made)
    return {lane["title"].partition(" (")[0].partition(",")[0]: lane["spans"] for lane in drawing["lanes"]}


def test_the_tracks_of_a_step_on_the_mac() -> None:
    """Twenty products and one read at the end: the GPU works as long as they take, and the host waits for all of it."""
    found = forecast(recording())
    line = timeline_of(found)
    (device,) = line.device
    assert device.end - device.start == pytest.approx(20 * ONE)
    assert (device.calls, device.operator, device.what) == (20, "aten::mm", "compute")
    (wait,) = line.waits
    assert wait.place is not None
    assert (wait.place.file, wait.place.line, wait.place.wait, wait.calls) == ("train.py", 12, Wait.ITEM, 1)
    (placed,) = found.waits
    assert placed.stands == pytest.approx(wait.end - wait.start)
    assert placed.stands > placed.seconds
    assert (line.before, line.fallbacks) == (0.0, ())
    assert 1 < line.deepest <= 20
    assert line.length == pytest.approx(found.time.seconds)


@pytest.mark.parametrize(
    ("backward", "line", "word"),
    [
        ("loss.backward()", LOSS, "loss read"),
        ("err_d[0].backward(retain_graph=True)", "print(err_d[0].item())", "loss read"),
        ("scaler.scale(l).backward()", "print(l.item())", "loss read"),
        ("l.backward()", "right += (scores.argmax() == label).sum().item()", "value read"),
        ("accelerator.backward(l)", "seen = accelerator.gather(right).item()", "value read"),
    ],
)
def test_only_a_loss_is_called_one(backward: str, line: str, word: str) -> None:
    """Each text and drawing calls a read of another value a value read."""
    story = Story.of(recording(2, line=line, backward=backward, side="float32[64, 64]"))
    other = {"loss read", "value read"} - {word}
    forms = [*(rendered(story, form) for form in ("terminal", "html")), render_summary(story, [])]
    forms.append("".join(as_form(diff_document(compare(story, story, [], [])), "terminal")))
    for shown in forms:
        assert word in shown
        assert not other & set(re.findall(r"\w+ read\b", shown))


def rendered(story: Story, form: str) -> str:
    """The whole report."""
    return "".join(report_pieces(form, story, []))


def test_a_host_that_runs_ahead_begins_before_the_gpu_is_done() -> None:
    """Without a wait the GPU still works for the step before when the host begins the next."""
    found = forecast(recording(reads=False))
    line = timeline_of(found)
    assert line.before > ONE
    assert line.device[0].start == pytest.approx(line.before)
    assert line.waits == ()
    assert lanes(recording(reads=False))["GPU: kernels"][0]["title"] == "the step before: the GPU still works for it"


def test_a_fallback_empties_the_queue() -> None:
    """It is a wait and a time of the CPU, at its line, and the GPU has nothing to do meanwhile."""
    line = timeline_of(forecast(recording(fallback=True, reads=False)))
    (fallback,), (wait,) = line.fallbacks, line.waits
    assert (fallback.operator, fallback.what) == ("aten::cummax", "CPU fallback")
    assert fallback.place is not None
    assert fallback.place.line == 12
    assert wait.end == pytest.approx(fallback.start)
    assert all(span.end <= fallback.start + 1e-9 or span.start >= fallback.end - 1e-9 for span in line.device)


def test_spans_are_no_finer_than_asked_for() -> None:
    """What lies closer than that part of a step is one span, named by most of it."""
    found = forecast(recording(fallback=True))
    assert len(timeline_of(found, resolution=1).device) == 1
    assert len(timeline_of(found).device) == 2
    assert {span.what for span in timeline_of(found, resolution=1).host} == {"waits"}


def test_labels_name_a_table_where_there_is_one() -> None:
    """The bar of a step has none: its label is all."""
    sentence, drawing, _ = drawn(recording())
    (section,) = time_section(Story.of(recording()))
    (bar,) = section.blocks
    assert isinstance(bar, Drawing)
    assert drawing["label"] == f"Tracks over time. {sentence} The table below has the same numbers."
    assert bar.data["label"] == f"Tracks over time. {bar.data['caption']}"


def test_the_page_draws_the_step_on_the_mac() -> None:
    """Its sentence, its lanes, its legend and its caption say whose time it is."""
    made = recording()
    sentence, drawing, table = drawn(made)
    seconds = forecast(made).time.seconds
    assert sentence == (
        f"A typical step on an M3 Pro 18GB, predicted: {1e3 * seconds:.1f} ms, bound by compute. 1 wait."
    )
    assert drawing["caption"] == (
        "Times are predicted for the M3 Pro 18GB, not measured here. Calls closer than a thousandth of the "
        "step are drawn as one."
    )
    assert [lane["title"] for lane in drawing["lanes"]] == [
        "host: phases of the step",
        "host: what it does",
        "GPU: kernels",
        "CPU: operators that fell back (none)",
        f"queue: calls that the GPU has yet to do, at most {timeline_of(forecast(made)).deepest}",
        "host waits for the GPU",
    ]
    assert [name for _, name in drawing["legend"]] == [
        "launches operators",
        "runs the program's own code",
        "waits for the GPU",
    ]
    assert [row[2:] for row in table.rows] == [
        ("host", "forward", ""),
        ("host", "loss read", ""),
        ("wait", "item", "train.py:12"),
        ("host", "other", ""),
    ]
    page = "".join(report_pieces("html", Story.of(made), []))
    assert "Times are predicted for the M3 Pro 18GB, not measured here." in page
    assert '<th scope="col" class="num">host idle</th>' in page
    assert "host idle" in render_terminal(Story.of(made), [])
    (wait,) = json.loads("".join(report_pieces("json", Story.of(made), [])))["predicted_step"]["waits"]
    assert wait["host_idle_seconds"] == pytest.approx(forecast(made).waits[0].stands)


@pytest.mark.parametrize("meta", [{"mac": "a Mac that nobody knows", "mac_details": ""}, {"virtual": False}])
def test_no_timeline_without_a_prediction_and_on_a_mac(meta: dict[str, object]) -> None:
    """Of a Mac without data nothing is predicted; what a Mac itself took is no prediction."""
    story = Story.of(recording(**meta))
    assert list(timeline_section(story)) == []
    assert 'id="timeline"' not in rendered(story, "html")
    assert "host idle" not in rendered(story, "terminal")


def test_a_report_walks_through_the_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may have a million calls: its time and its tracks come from one walk."""
    walks = []

    def counted(*given: Any, **named: Any) -> WalkedStep:
        walks.append(given)
        return walk_step(*given, **named)

    monkeypatch.setattr(_forecast, "walk_step", counted)
    made = recording()
    assert "on the Mac" in "".join(report_pieces("html", Story.of(made), []))
    assert len(walks) == 1
