"""Which Mac? The table that a plan begins with: one row a Mac, in the text, on the page and in JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anymps import parse_mac
from anymps.commands._show import show_document
from anymps.cost import Happening, speed_ratio
from anymps.forecast import StepWork
from anymps.plan import MacOutcome, NoLarger, Plan, Row, Verdict, mac_time, representative, step_times
from anymps.report import Output, Outputs, plan_document, plan_json
from anymps.report.plan._choice_words import by_memory, choice_table, more, said
from plans import GIB, plan_page, planned, render_plan, resting, work
from processes import run_command
from report.test_report_forms import validator
from report.test_report_html import Page


def every(least: int = 16) -> Plan:
    """A plan for each chip: it fails below `least` GB and is tight with so many; the batch grows with the memory."""
    plan = planned()
    peak = plan.base.story.peak_reserved
    rows = []
    for mac in representative():
        size = mac.ram_gib
        verdict = Verdict.FAILS if size < least else Verdict.TIGHT if size == least else Verdict.FITS
        largest = 0 if size < least else 8 if size == least else 2 * size
        rows.append(Row(MacOutcome(mac, verdict, peak, peak, mac.recommended_max_memory - peak, GIB), largest))
    times = step_times(plan.base, [row.outcome for row in rows], "2.13.0")
    return replace(plan, rows=tuple(rows), times=times)


def test_each_chip_is_one_row_with_the_batch_of_its_memory() -> None:
    """Times, samples and what binds come from the times; the largest batch from the memory that the chip has there."""
    plan = every()
    assert [choice.mac for choice in plan.choices] == [timed.mac for timed in plan.times]
    rows = choice_table(plan)
    assert rows.names == ("Mac", "batch 8", "largest", "a step", "80 %", "samples/s", "bound by")
    table = {row[0]: row[1:] for row in rows.rows}
    assert table["M1 16GB"] == ("tight", "8", "300 ms", "239 to 377 ms", "27", "compute")
    assert table["M3 Ultra 96GB"][:3] == ("fits", "192", "32.3 ms")
    assert table["A18 Pro 8GB"] == ("fails", "none", "", "", "", "")


def test_the_answer_is_the_first_screen() -> None:
    """All chips within the first 30 lines of a terminal, and no drawing; what is left is behind `-v`."""
    lines = render_plan(every(), width=80).splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("Which Mac?"))
    assert [line.split()[0] for line in lines[first + 2 : first + 21]] == [
        timed.mac.name.split()[0] for timed in every().times
    ]
    assert first + 21 <= 30
    short, whole = render_plan(planned()), render_plan(planned(), verbose=True)
    assert whole.startswith(short.partition("\nWhat if")[0])
    for section in ("What fills the memory", "What the memory allows", "Limits of this plan"):
        assert section in whole
        assert section not in short
    assert "What if  each change alone" in short
    assert "-v shows" not in whole


def test_where_the_intervals_have_no_room_a_sentence_stands_for_them() -> None:
    """The widest of all Macs, as factors."""
    narrow = choice_table(every()).narrower
    assert narrow is not None
    assert "80 %" not in narrow.names
    assert "80 % intervals of the steps: 0.68 to 1.48 times the prediction." in narrow.rest
    assert "intervals" not in choice_table(every()).rest


def test_the_largest_batch_by_memory() -> None:
    """Each memory size in one sentence; for Macs that were asked about the table says it."""
    told = by_memory(every())
    assert told.startswith(
        "Largest batch by memory: 8 GB fails; 16 GB tight, batch 8; 18 GB batch 36; 24 GB batch 48; "
    )
    assert by_memory(planned("M5 16GB")) == ""
    unknown = every()
    rows = tuple(replace(row, largest_batch=None) for row in unknown.rows)
    unknown = replace(unknown, rows=rows, no_larger=NoLarger.NOT_MEASURED)
    assert by_memory(unknown) == "By memory: 8 GB fails; 16 GB tight; 18 to 512 GB fits."
    assert choice_table(unknown).rest.endswith("The largest batch was not measured (--no-larger).")


def test_without_times_the_macs_stand_by_memory() -> None:
    """Whether it fits is known without any time."""
    rows = choice_table(replace(every(), times=()))
    assert rows.names == ("Mac", "batch 8", "largest")
    assert [row[1] for row in rows.rows] == ["fails", "tight", *["fits"] * 11]
    assert choice_table(resting()).names == ("Mac", "as written")


def test_what_hangs_on_values_is_told_in_the_short_form() -> None:
    """A plan has no values: who decides by the first screen must know."""
    assert more(planned()).startswith(
        "The script reads values on 1 line, and memory may depend on them: -v lists them. -v "
    )
    rest = "; --report html=plan.html draws it all."
    assert more(resting()) == f"-v shows what fills the memory and the limits of each Mac{rest}"


def test_json_has_the_table() -> None:
    """Unrounded, by the published schema."""
    document = json.loads(plan_json(every()))
    validator("plan-1.json").validate(document)
    first, *_, last = document["which_mac"]
    assert (first["mac"], first["verdict"], first["largest_batch"]) == ("M1 16GB", "tight", 8)
    assert first["seconds"] == next(row["seconds"] for row in document["times"] if row["mac"] == "M1 16GB")
    assert (last["mac"], last["seconds"], last["bound"]) == ("A18 Pro 8GB", None, None)


def test_the_picture_has_a_bar_for_each_mac_with_a_time() -> None:
    """From nothing to the samples a second, with the interval; a Mac that fails has its name alone."""
    plan = every()
    page = Page(plan_page(plan))
    label = next(
        attrs["aria-label"] for tag, attrs in page.tags if tag == "svg" and "each Mac." in attrs.get("aria-label", "")
    )
    assert label.startswith("Samples a second on each Mac. M1 16GB: tight, batch up to 8, 27/s; ")
    assert "A18 Pro 8GB: fails" in label
    bars = [attrs for tag, attrs in page.tags if tag == "rect" and attrs.get("class", "").startswith("bar ")]
    assert len(bars) == sum(timed.time is not None for timed in plan.times)
    assert [bar["class"] for bar in bars][:2] == ["bar tight", "bar tight"]
    widths = [float(bar["width"].rstrip("%")) for bar in bars]
    assert widths == sorted(widths)
    seconds = [timed.time.seconds for timed in plan.times if timed.time is not None]
    assert widths[-1] / widths[0] == pytest.approx(seconds[0] / seconds[-1], rel=1e-3)


def test_a_mac_above_its_bar() -> None:
    """Samples a second where the batch is known, else the time of a step."""
    one = every().choices[0]
    assert said(one) == "M1 16GB: tight, batch up to 8, 27/s"
    assert said(replace(one, samples=None, largest_batch=None)) == "M1 16GB: tight, 300 ms a step"
    assert said(replace(one, samples=None, time=None, largest_batch=0, verdict=Verdict.FAILS)) == "M1 16GB: fails"
    assert said(replace(one, samples=None, time=None, largest_batch=None)) == "M1 16GB: tight, time unknown"


@pytest.mark.parametrize(
    ("name", "lacks", "why"),
    [
        ("M3 Pro 18GB", True, "No time is predicted, because the script made no whole step."),
        ("M3 Pro 18GB", False, "No time is predicted, because too few of the step's calls have a known time."),
        ("A18 Pro 8GB", False, "No time is predicted, because the clock of its GPU is not public."),
    ],
)
def test_a_plan_without_times_says_why(name: str, lacks: bool, why: str) -> None:
    """In the table's last lines, and nothing beside the title promises times."""
    plan, mac = planned("M3 Pro 18GB"), parse_mac(name)
    rows = tuple(replace(row, outcome=replace(row.outcome, mac=mac)) for row in plan.rows)
    base = replace(plan.base, work=None) if lacks else plan.base
    plan = replace(plan, rows=rows, asked=(mac,), base=base, times=())
    text = " ".join(render_plan(plan).split())
    assert why in text
    assert "Which Mac? Mac" in text


def test_a_machine_that_was_busy_is_told_of() -> None:
    """Where the program's own code takes a part of the step; else its time moves nothing."""
    plan = planned("M3 Pro 18GB")
    for own, told in ((0.0, False), (1.0, True)):
        base = replace(plan.base, work=StepWork((Happening("wait", host_code=own), *work().happenings), 1, 0.25))
        times = step_times(base, [row.outcome for row in plan.rows], "2.13.0", plan.asked)
        rest = choice_table(replace(plan, base=base, times=times)).rest
        sentence = "This machine was busy for 25 % of the time in the program's own code: the intervals are wider."
        assert (sentence in rest) is told


@pytest.mark.parametrize("verdict", [Verdict.PAGES, Verdict.FAILS])
def test_a_run_that_does_not_fit_needs_no_other_reason(verdict: Verdict) -> None:
    """Its verdict says why there is no time."""
    plan = planned("M3 Pro 18GB")
    rows = tuple(replace(row, outcome=replace(row.outcome, verdict=verdict)) for row in plan.rows)
    assert "No time is predicted" not in render_plan(replace(plan, rows=rows, times=()))


def test_a_file_has_the_whole_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown may be short; a file is not read on one screen. Standard output has one of the two."""
    whole, short, as_json = plan_document(planned()), plan_document(planned(), short=True), plan_json(planned())
    path = tmp_path / "plan.txt"
    outputs = Outputs((Output("terminal", str(path)), Output("json", str(tmp_path / "plan.json"))))
    show_document(short, outputs, whole, lambda: as_json)
    said = f"anymps: report: {path}\nanymps: report: {tmp_path}/plan.json\n"
    assert capsys.readouterr() == (render_plan(planned()), said)
    assert path.read_text(encoding="utf-8") == render_plan(planned(), verbose=True)
    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == as_json
    show_document(short, Outputs((Output("json", "-"),)), whole, lambda: as_json)
    assert capsys.readouterr() == (as_json, "")


def against(name: str, verdict: Verdict = Verdict.TIGHT) -> Plan:
    """The plan of each chip beside one's own Mac."""
    plan, mac = every(), parse_mac(name)
    free = mac_time(plan.base, mac, Verdict.FITS, "2.13.0")
    largest = 8 if verdict is Verdict.TIGHT else 0
    return replace(plan, own=replace(free, verdict=verdict, largest_batch=largest, own=True))


def test_ones_own_mac_comes_first_and_others_are_compared_with_it() -> None:
    """Each ratio has its own interval, narrower than that of two times apart; there is one row of the own Mac."""
    plan = against("M1 16GB")
    rows = choice_table(plan)
    assert rows.names[-2:] == ("speed", "80 %")
    assert [place for place, column in enumerate(rows.columns) if column.kind == "number"] == [2, 3, 4, 5, 7, 8]
    assert rows.rows[0] == ("M1 16GB (yours)", "tight", "8", "263 ms", "209 to 331 ms", "30", "compute", "1x", "")
    assert [row[0] for row in rows.rows].count("M1 16GB") == 0
    assert len(rows.rows) == len(every().choices)
    own, *others = plan.choices
    for choice in others:
        if choice.time is not None:
            assert plan.own is not None and plan.own.time is not None
            assert choice.speed == speed_ratio(choice.time, plan.own.time)
            apart = (choice.time.high / plan.own.time.low) / (choice.time.low / plan.own.time.high)
            assert choice.speed.high / choice.speed.low < 0.8 * apart
    assert own.speed == (1, 1, 1)
    shown = render_plan(plan, width=80)
    assert "Which Mac?  speed against M1 16GB; predicted, with 80 % intervals" in shown
    assert "  M4 16GB          tight          8   221 ms  compute    1.2x  0.85 to 1.7x" in shown


def test_ones_own_mac_may_be_too_small() -> None:
    """It has no time, and the others are compared with the one that it would have with memory enough."""
    plan = against("M1 8GB", Verdict.FAILS)
    rows = choice_table(plan)
    assert rows.rows[0] == ("M1 8GB (yours)", "fails", "none", "", "", "", "", "", "")
    slowest, own = plan.choices[1], plan.own
    assert slowest.time is not None and own is not None and own.time is not None
    assert slowest.speed is not None and slowest.speed.value == own.time.seconds / slowest.time.seconds
    sentence = "On M1 8GB the run fails: speeds are relative to its step there with enough memory."
    assert sentence in rows.rest


def test_a_mac_without_a_time_compares_with_nothing() -> None:
    """The clock of its GPU is not public."""
    plan = against("MacBook Neo")
    rows = choice_table(plan)
    assert "speed" not in rows.names
    why = "No time is predicted for A18 Pro 8GB, because the clock of its GPU is not public; so nothing is compared"
    assert f"{why} with it." in rows.rest
    assert rows.rest.count("A18 Pro 8GB") == 1
    assert "Which Mac?  predicted, with 80 % intervals" in render_plan(plan)
    assert json.loads(plan_json(plan))["which_mac"][1]["speed"] is None


def test_speeds_on_the_page_and_in_json() -> None:
    """The bars are of the speeds, with their intervals; JSON has them unrounded."""
    plan = against("M1 16GB")
    page = Page(plan_page(plan))
    labels = [attrs.get("aria-label", "") for tag, attrs in page.tags if tag == "svg"]
    assert labels[0].startswith(
        "Speed against M1 16GB on each Mac. M1 16GB (yours): tight, batch up to 8, 30/s; "
        "M3 16GB: tight, batch up to 8, 1.1x; "
    )
    document = json.loads(plan_json(plan))
    validator("plan-1.json").validate(document)
    assert document["against"] == "M1 16GB"
    assert json.loads(plan_json(every()))["against"] is None
    second = plan.choices[1].speed
    assert second is not None
    row = document["which_mac"][1]
    assert (row["speed"], row["speed_low"], row["speed_high"]) == second


@pytest.mark.parametrize("option", ["--mac", "--against"])
def test_a_mac_that_was_never_sold(option: str, tmp_path: Path) -> None:
    """One line with the nearest ones, and nothing runs."""
    (tmp_path / "train.py").write_text("raise SystemExit", encoding="utf-8")
    result = run_command("-m", "anymps", "plan", option, "M1 12GB", "train.py", cwd=tmp_path)
    message = "anymps: M1 has 8 or 16 GB, not 12"
    assert (result.status, result.out, result.err) == (2, "", f"{message}\n")
