"""Batch against samples a second: the calls of a step at other sizes, the knee, and where nothing can be told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anymps import parse_mac
from anymps.cost import Happening, OperatorCall, walk_step
from anymps.forecast import StepWork
from anymps.plan import Batches, Growth, batch_times
from anymps.report.document import Document, Section, as_text
from anymps.report.plan._batch_words import batch_table, knee, without_batches
from anymps.report.plan._json import plan_json
from plans import plan_page, planned, render_plan, work

MAC = parse_mac("M5 16GB")


def step(*calls: OperatorCall, moved: int = 0, batches: int = 1) -> StepWork:
    """Kernels, and a copy if something is moved."""
    kernels = [Happening("kernel", call) for call in calls]
    return StepWork((*kernels, *([Happening("copy", moved=moved)] if moved else [])), batches)


def mm(rows: int, inner: int = 64) -> OperatorCall:
    """A product with so many rows."""
    return OperatorCall("aten::mm", (f"float32[{rows}, {inner}]", f"float32[{inner}, 32]"), (f"float32[{rows}, 32]",))


def grown(small: StepWork, large: StepWork) -> Growth | None:
    """From eight samples to sixteen."""
    return Growth.between(small, 8, large, 16)


def test_sizes_and_bytes_grow_with_the_batch() -> None:
    """Those of the batch alone, flattened or not; what another run of that batch makes is what is told of it."""
    once, again = mm(8 * 5), mm(8 * 5)
    found = grown(step(once, once, moved=800), step(mm(16 * 5), again := mm(16 * 5), moved=1600))
    assert again == mm(80)
    assert found is not None
    assert found.at(32) == step(mm(32 * 5), mm(32 * 5), moved=3200)
    assert found.at(2) == step(mm(2 * 5), mm(2 * 5), moved=200)


def test_the_same_call_stays_one_object() -> None:
    """A walk looks up each call once, by its identity."""
    small, large = mm(8), mm(16)
    found = grown(step(*[small] * 50), step(*[large] * 50))
    assert found is not None
    made = found.at(64)
    assert made is not None
    assert len({id(happening.call) for happening in made.happenings}) == 1


@pytest.mark.parametrize(
    "large",
    [
        step(mm(16), mm(16)),
        step(OperatorCall("aten::addmm", mm(16).inputs, mm(16).outputs)),
        step(OperatorCall("aten::mv", mm(16).inputs, mm(16).outputs)),
        step(OperatorCall("aten::mm", ("float16[16, 64]", "float32[64, 32]"), ("float32[16, 32]",))),
        step(OperatorCall("aten::mm", mm(16).inputs[:1], mm(16).outputs)),
        step(mm(16), batches=2),
        step(mm(3)),
        step(mm(21)),
    ],
    ids=[
        "more calls",
        "another operator",
        "a later operator",
        "another dtype",
        "fewer inputs",
        "more batches",
        "rest",
        "rest before",
    ],
)
def test_another_course_tells_nothing(large: StepWork) -> None:
    """Of a step that does something else with twice the batch, nothing is said about a third batch size."""
    assert grown(step(mm(8)), large) is None


def test_a_size_that_is_none() -> None:
    """A pooled half of the batch is not there with an odd one; one sample less than none neither."""
    found = grown(step(mm(4)), step(mm(8)))
    assert found is not None
    assert found.at(4) == step(mm(2))
    assert found.at(5) is None
    pairs = grown(step(mm(8 - 1)), step(mm(16 - 1)))
    assert pairs is not None
    assert pairs.at(2) == step(mm(1))
    assert pairs.at(1) is None


def test_from_a_quarter_of_the_batch_to_the_largest_that_fits() -> None:
    """Halves, doubles and the largest; each is what the walk of that batch says."""
    growth = grown(work(8), work(16))
    assert growth is not None
    (found,) = batch_times(growth, 8, [MAC], lambda _: 100, "2.13")
    assert [row.batch for row in found.rows] == [2, 4, 8, 16, 32, 64, 100]
    for row in found.rows:
        assert row.time.seconds == walk_step(work(row.batch).happenings, MAC, "2.13").seconds
        assert row.samples == pytest.approx(row.batch / row.time.seconds)
        assert row.low < row.samples < row.high
    (odd,) = batch_times(growth, 6, [MAC], lambda _: 1 << 16, "2.13")
    assert [row.batch for row in odd.rows] == [3, 6, 12, 24, 48, 96, 192, 384]
    (few,) = batch_times(growth, 8, [MAC], lambda _: 3, "2.13")
    assert [row.batch for row in few.rows] == [2, 3]
    assert batch_times(growth, 8, [MAC], lambda _: 2, "2.13") == ()  # one alone compares with nothing
    assert batch_times(growth, 8, [MAC], lambda _: 0, "2.13") == ()


def batches(rows: int, largest: int, *, asked: bool = False) -> Batches:
    """Twenty products with so many rows a sample, on an M5."""
    growth = grown(step(*[mm(8 * rows, 1024)] * 20), step(*[mm(16 * rows, 1024)] * 20))
    assert growth is not None
    (found,) = batch_times(growth, 8, [MAC], lambda _: largest, "2.13", asked=asked)
    return found


@pytest.mark.parametrize(
    ("rows", "asked", "own"),
    [(64, False, ""), (8192, False, " (the script's is 8)"), (8192, True, " (--batch is 8)")],
    ids=["above", "below", "asked for"],
)
def test_the_knee(rows: int, asked: bool, own: str) -> None:
    """The smallest batch with nine tenths of the most samples a second; the script's own is told where it is larger."""
    found = batches(rows, 512, asked=asked)
    most = max(row.samples for row in found.rows)
    assert found.knee is not None
    assert (found.knee.batch > 8) == (not own)
    smaller = [row.samples for row in found.rows if row.batch < found.knee.batch]
    assert found.knee.samples >= 0.9 * most > max(smaller, default=0.0)
    share = round(100 * found.knee.samples / most)
    assert knee(found) == (
        f"On M5 16GB, batch {found.knee.batch} reaches {share} % of the highest rate{own}: "
        "a larger batch gives little more."
    )


def test_no_knee() -> None:
    """A step that is bound by launches: every doubling doubles the samples."""
    growth = grown(step(*[mm(8)] * 200), step(*[mm(16)] * 200))
    assert growth is not None
    (fits,) = batch_times(growth, 8, [MAC], lambda _: 32, "2.13")
    assert fits.knee is None
    assert knee(fits) == "On M5 16GB, samples a second grow up to batch 32, the largest that fits."
    (more,) = batch_times(growth, 8, [MAC], lambda _: 1 << 16, "2.13")
    if more.knee is None:
        assert knee(more).endswith("batch 512, the largest that was tried.")


def test_table_and_page() -> None:
    """One Mac without its name in the rows, two with; on the page as in the terminal."""
    one = planned("M5 16GB")
    assert batch_table(one).names == ("batch", "a step", "80 %", "samples/s", "80 %", "speed", "bound by")
    assert [row[0] for row in batch_table(one).rows] == ["2", "4", "8 (script's)", "16", "32", "64", "100"]
    shown = render_plan(one, verbose=True)
    assert "Batch against samples a second  predicted, with 80 % intervals\n" in shown
    two = planned("M5 16GB", "M3 Pro 18GB")
    assert {row[0] for row in batch_table(two).rows} == {"M5 16GB", "M3 Pro 18GB"}
    assert "Predicted, with 80 % intervals" in plan_page(two)
    sizes = json.loads(plan_json(one))["batches"][0]
    assert (sizes["mac"], sizes["own"], sizes["largest"]) == ("M5 16GB", 8, 100)
    assert [size["batch"] for size in sizes["sizes"]] == [2, 4, 8, 16, 32, 64, 100]


def test_where_it_cannot_be_told() -> None:
    """A sentence for a step that makes other calls; none where no step has a time, or only one size fits."""
    sentence = (
        "Samples a second with other batch sizes are unknown: with twice the batch, no whole step makes the same calls."
    )
    other = replace(planned(), batches=(), other_calls=True)
    assert without_batches(other) == sentence
    assert sentence in " ".join(render_plan(other, verbose=True).split())
    assert sentence in plan_page(other)
    assert without_batches(planned()) == ""
    assert without_batches(replace(other, times=())) == ""
    assert without_batches(replace(planned(), batches=())) == ""


def test_a_narrow_terminal_leaves_out_the_interval_of_samples() -> None:
    """No cell is cut: the column goes where the width is too little for all."""
    table = batch_table(planned("M3 Pro 18GB", "M5 16GB"))
    document = Document("", "", "", (), "clean", "", (Section("batches", "", (table,)),))
    text = as_text(document, width=table.width + 3)
    rows = [line.split() for line in text.splitlines() if line]
    assert rows[0] == ["Mac", "batch", "a", "step", "80", "%", "samples/s", "speed", "bound", "by"]
    assert all(f"  {cell}" in text for row in table.rows for cell in (*row[1:5], *row[6:]))
    assert not any(row[5] in text for row in table.rows)
