"""One number, one text: what a step does and takes reads the same in every form of a report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from itertools import pairwise

import pytest

from anymps.findings import Story, find
from anymps.record import Recording
from anymps.report import render_summary, report_pieces
from anymps.report._text import count, duration
from recordings import small, training
from timed_steps import MS, Steps

PHASES = ("batch", "move", "forward", "loss read", "backward", "optimizer", "other", "whole step", "first step")


def predicted(*, loading: int = 0) -> Recording:
    """Steps that a Mac's time is predicted for, with a wait, a fallback and `loading` ns for a batch."""
    steps = Steps()
    for _ in range(4):
        if loading:
            steps.batch(loading)
        steps.product(20)
        steps.fallback(3 * MS)
        steps.item()
        steps.end()
    return steps.close()


RECORDINGS: dict[str, Callable[[], Recording]] = {
    "small": small,
    "training": lambda: training().close(),
    "clean": lambda: training(clean=True).close(),
    "predicted": predicted,
    "loading": lambda: predicted(loading=20 * MS),
    "bound by loading": lambda: predicted(loading=900 * MS),
}

Rows = dict[str, dict[str, str]]
"""The cells of the step table that are not empty, by row and column."""


def from_terminal(text: str) -> Rows:
    """Its numbers end where their heads end."""
    head = re.search(r"^  phase .*$", text, re.MULTILINE)
    assert head is not None
    ends = [(match[0], match.end()) for match in re.finditer(r"\S+( \S+)*", head[0])]
    lines = text[head.end() :].splitlines()
    rows = {name: next((line for line in lines if line.startswith(f"  {name}")), "") for name in PHASES}
    found: Rows = {}
    for name, line in rows.items():
        ranges = pairwise(ends)
        cells = {title: line[before:end].strip() for (_, before), (title, end) in ranges}
        # A name of a phase may be longer than its head.
        cells["on mps"] = cells["on mps"].removeprefix(name[3:]).split(" ")[-1] if cells["on mps"] else ""
        found[name] = {title: cell for title, cell in cells.items() if re.match(r"[<\d]", cell)}
    return {name: cells for name, cells in found.items() if rows[name]}


def from_markdown(text: str) -> Rows:
    """A table of bars."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    head = next(line for line in lines if line[0] == "phase")
    return {line[0]: _filled(head[1:], line[1:]) for line in lines if line[0] in PHASES and len(line) == len(head)}


def from_page(text: str) -> Rows:
    """The table with its id."""
    table = re.search(r'<table id="step-table">(.*?)</table>', text, re.DOTALL)
    assert table is not None
    lines = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table[1])]
    return {line[0]: _filled(lines[0][1:], [unescape(cell) for cell in line[1:]]) for line in lines[1:]}


def from_json(text: str) -> Rows:
    """Written as the others write numbers."""
    report = json.loads(text)
    table = report["step_table"]
    step = report["predicted_step"] or {"phases": [], "seconds": None}
    on_mac = {share["phase"]: share["seconds"] for share in step["phases"]} if step["seconds"] is not None else {}
    shares = table["median"] or table["first"]
    whole = {name: sum(share[name] for share in shares) for name in shares[0] if name != "phase"}
    first = {name: sum(share[name] for share in table["first"]) for name in whole}
    rows = {share["phase"]: _written(share, on_mac.get(share["phase"], 0.0)) for share in shares}
    rows["whole step"] = _written(whole, step["seconds"] or 0.0)
    return {**rows, "first step": _written(first, 0.0)}


def _written(share: dict[str, float], on_mac: float) -> dict[str, str]:
    cells = {name: count(share[name.replace(" ", "_").lower()]) for name in ("on mps", "on CPU", "waits")}
    return _filled(
        [*cells, "time", "on the Mac"], [*cells.values(), duration(share["time_ns"]), duration(1e9 * on_mac)]
    )


def _filled(names: list[str], cells: list[str]) -> dict[str, str]:
    return {name: cell for name, cell in zip(names, cells, strict=True) if cell}


def forms(recording: Recording) -> dict[str, str]:
    """The report in every form that has the numbers, with one word for what JSON calls `loss read`."""
    found = find(recording)
    names = ("terminal", "markdown", "html", "json")
    texts = {name: "".join(report_pieces(name, Story.of(recording), found)) for name in names}
    texts = {name: text.replace("value read", "loss read") for name, text in texts.items()}
    return {**texts, "summary": render_summary(Story.of(recording), found)}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_step_has_the_same_numbers_in_every_form(name: str) -> None:
    """Operators, waits, the time of each phase (loading is that of `batch`), and what it takes on the Mac."""
    texts = forms(RECORDINGS[name]())
    expected = from_json(texts["json"])
    names = set(expected["whole step"]) | {"on CPU", "on the Mac"}
    shown = {
        "terminal": from_terminal(texts["terminal"]),
        "markdown": from_markdown(texts["markdown"]),
        "html": from_page(texts["html"]),
    }
    for form, rows in shown.items():
        kept = {phase: {key: cell for key, cell in cells.items() if key in names} for phase, cells in rows.items()}
        assert kept == expected, form
    whole, summary = expected["whole step"], " ".join(texts["summary"].split())
    page = dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", texts["html"]))
    assert page.get("a step on the Mac") == whole.get("on the Mac")
    assert next(value for key, value in page.items() if key.startswith("its waits")) == whole.get("waits", "0")
    assert f"A step: {whole['on mps']} operators on mps, {whole.get('on CPU', '0')} on the CPU." in summary
    if "on the Mac" in whole:
        assert f"A step: about {whole['on the Mac']} (" in summary
    for form, text in texts.items():
        sentence = " ".join(text.split())
        if "on the Mac" in whole and form not in ("summary", "json"):
            assert f"A step would take about {whole['on the Mac']} on " in sentence, form
        for loading in re.findall(r"Data loading would limit a step, [^.]* it took (.*?) here", sentence):
            assert loading == expected["batch"]["time"], form
    bound = [
        "Data loading would limit" in " ".join(texts[form].split())
        for form in ("terminal", "markdown", "html", "summary")
    ]
    assert bound == [name == "bound by loading"] * 4


@pytest.mark.parametrize("name", RECORDINGS)
def test_needless_waits_are_one_number(name: str) -> None:
    """In the sentence of every form, in the page's figures, and as the sum of the table of waits."""
    texts = forms(RECORDINGS[name]())
    told = {form: _needless(" ".join(text.split())) for form, text in texts.items()}
    assert len(set(told.values())) == 1, told
    (number,) = set(told.values())
    figure = re.search(r"its waits(?: \((.*?) needless\))?<", texts["html"])
    assert figure is not None
    assert (figure[1] or "0") == number
    table = re.search(r'<table id="waits-hurting">(.*?)</table>', texts["html"], re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table[1]) if table is not None else []
    per_step = [float(re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)[2].replace(",", "")) for row in rows[1:]]
    assert (count(sum(per_step)) or "0") == number


def _needless(text: str) -> str:
    found = re.search(r"([\d.,]+) waits? in every step|([\d.,]+) of a step(?:'|&#39;)s [\d.,]+ waits (?:is|are)", text)
    return (found[1] or found[2]) if found is not None else "0"
