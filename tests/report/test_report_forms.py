"""Every form of a report: whole outputs of hand-made recordings, and that each form keeps to its standard.

`PYTHONPATH=tests python tests/report/test_report_forms.py` writes the expected outputs anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from anymps._settings import FORMATS
from anymps.findings import Finding, Story, find
from anymps.record import Phase, Recording, RecordingBuilder, RecordingWriter, Site, Wait
from anymps.report import compare, diff_document, render_terminal, report_pieces
from anymps.report import rendered as as_form
from recordings import META, hostile, refusing, small, training
from rule_loops import once

DATA = Path(__file__).parents[1] / "data"
SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
RECORDINGS = {"loop": small, "refused": refusing}
FORMS = [form for form in FORMATS if form != "terminal"]


def rendered(form: str, recording: Recording, root: str | None = None) -> str:
    """The whole report."""
    return "".join(report_pieces(form, Story.of(recording), find(recording), root))


def comparable(form: str, report: str) -> str:
    """The report; a page without its style and script, whose hashes would change with every comma of theirs."""
    if form != "html":
        return report
    report = re.sub(r"<(style|script)>.*?</\1>", r"<\1></\1>", report, flags=re.DOTALL)
    return re.sub(r"sha256-[\w+/=]+", "sha256-", report)


def expected_file(form: str, name: str) -> Path:
    """Where the expected output lies."""
    return DATA / "reports" / f"{name}.{form}"


DIFFS = {"better": lambda: (training(), training(clean=True)), "worse": lambda: (training(clean=True), training())}


def diff_in(form: str, before: RecordingBuilder, after: RecordingBuilder) -> str:
    """The comparison of two recordings in a form."""
    first, second = before.close(), after.close()
    return "".join(as_form(diff_document(compare(Story.of(first), Story.of(second), find(first), find(second))), form))


@pytest.mark.parametrize("form", ["html", "markdown"])
@pytest.mark.parametrize("name", DIFFS)
def test_whole_diff(name: str, form: str) -> None:
    """The whole comparison is the expected one."""
    shown = comparable(form, diff_in(form, *DIFFS[name]()))
    assert shown == expected_file(f"diff.{form}", name).read_text(encoding="utf-8")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RECORDINGS)
def test_whole_report(form: str, name: str) -> None:
    """The whole report of a recording is the expected one."""
    shown = comparable(form, rendered(form, RECORDINGS[name]()))
    assert shown == expected_file(form, name).read_text(encoding="utf-8")


TEXTS = {
    "training": lambda: render_terminal(*of(training().close())),
    "training-brief": lambda: render_terminal(*of(training().close()), brief=True),
    "refused": lambda: render_terminal(*of(refusing())),
    "killed": lambda: render_terminal(*of(killed())),
}


def of(recording: Recording) -> tuple[Story, list[Finding]]:
    """What a report is made of."""
    return Story.of(recording), find(recording)


@pytest.mark.parametrize("name", TEXTS)
def test_whole_text(name: str) -> None:
    """The whole report for a terminal is the expected one."""
    assert TEXTS[name]() == expected_file("txt", name).read_text(encoding="utf-8")


def killed() -> Recording:
    """A recording without steps that stops in the middle."""
    writer = RecordingWriter.in_memory({"virtual": True, "mac": "M1 8GB"})
    writer.add("operators", [(1, "aten::mm")])
    writer.add("signatures", [(1, 1, 0, "[]", "[]", "{}")])
    writer.add("totals", [(1, 0, 0, 3, 0, 0, 5, 5, 0)])
    return writer.recording()


def bare() -> Recording:
    """A recording in which nothing happened and of which nothing is known."""
    return RecordingBuilder().close()


ODD = {"hostile": hostile, "killed": killed, "bare": bare, "training": lambda: training().close(), "small": small}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ODD)
def test_any_recording_has_every_report(form: str, name: str) -> None:
    """A recording that is empty, killed or full of odd characters has every report, in plain UTF-8."""
    report = rendered(form, ODD[name]())
    report.encode("utf-8")
    assert report.endswith("\n")
    assert "\x1b" not in report
    assert "\x07" not in report


def strict(schema: object) -> object:
    """The schema with objects closed to fields that it does not name."""
    if isinstance(schema, dict):
        closed = {key: strict(value) for key, value in schema.items()}
        if "properties" in schema and schema.get("type") == "object":
            closed["additionalProperties"] = False
        return closed
    return [strict(item) for item in schema] if isinstance(schema, list) else schema


def validator(file: str) -> jsonschema.Draft202012Validator:
    """Holds a document to one of our published schemas, fields that are not in it included."""
    schema = json.loads((SCHEMAS / file).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(strict(schema))


@pytest.mark.parametrize("name", [*ODD, *RECORDINGS])
def test_json_fits_the_published_schema(name: str) -> None:
    """The JSON report has the fields of docs/schema/report-1.json and no others."""
    report = json.loads(rendered("json", {**ODD, **RECORDINGS}[name]()))
    validator("report-1.json").validate(report)


@pytest.mark.parametrize("name", [*ODD, *RECORDINGS])
def test_sarif_fits_the_standard(name: str) -> None:
    """The SARIF log is valid by the schema of SARIF 2.1.0, and each result names its rule rightly."""
    log = json.loads(rendered("sarif", {**ODD, **RECORDINGS}[name]()))
    schema = json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.Draft4Validator(schema).validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def fingerprints(line: int, extra: int = 0) -> list[str]:
    """The fingerprints of two equal reads in a loop of which the first is on `line`."""
    builder = RecordingBuilder(meta={"directory": "/p"})
    for step in range(4 + extra):
        for number in range(2):
            site = builder.site("/p/train.py", line + number, "main", "total += loss.item()")
            builder.entry("aten::_local_scalar_dense", start_ns=step, phase=Phase.LOSS_READ, site=site, wait=Wait.ITEM)
        builder.end_step(step + 1)
    (run,) = json.loads(rendered("sarif", builder.close()))["runs"]
    return [result["partialFingerprints"]["anymps/v1"] for result in run["results"]]


def test_fingerprints_stay_when_lines_move() -> None:
    """Fingerprints tell two equal lines apart, and change neither with the line's number nor with the run's length."""
    first = fingerprints(12)
    assert len(set(first)) == 2
    assert first == fingerprints(40) == fingerprints(12, extra=3)


def test_paths_are_told_from_a_root() -> None:
    """Files below the root are relative to it, others are not; by default the root is the directory of the run."""
    (run,) = json.loads(rendered("sarif", small()))["runs"]
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in run["results"]]
    assert places[0] == {"uri": "nets/model.py", "uriBaseId": "%SRCROOT%"}
    assert run["originalUriBaseIds"] == {"%SRCROOT%": {"uri": "file:///home/me/project/"}}
    (run,) = json.loads(rendered("sarif", small(), "/home/me/project/nets"))["runs"]
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in run["results"]]
    assert places == [{"uri": "model.py", "uriBaseId": "%SRCROOT%"}, {"uri": "file:///home/me/project/train.py"}]
    lines = rendered("github", small(), "/home/me").splitlines()
    assert lines[1].startswith("::warning file=project/nets/model.py,line=19,title=MPS102 ")
    elsewhere = rendered("github", small(), "/elsewhere").splitlines()
    assert elsewhere[1].startswith("::warning title=MPS102 Operator runs on the CPU in the loop::nets/model.py:19: ")


@pytest.mark.parametrize("form", ["terminal", "html", "markdown"])
def test_people_read_of_notes(form: str) -> None:
    """The least severity is a note in what people read, as in the count of findings; `info` is its name in settings."""
    recording = once("loader", times=5, workers=0, pin_memory=True, persistent=False, guarded=True)
    report = re.sub(
        r"<style>.*</style>", "", "".join(report_pieces(form, Story.of(recording), find(recording))), flags=re.DOTALL
    )
    assert "1 note." in report
    assert re.search(
        {"terminal": "MPS801 note ", "html": "</span> note</span>", "markdown": "MPS801 note,"}[form], report
    )


def test_annotations_cannot_be_broken_out_of() -> None:
    """Characters that end a property, a message or a line are escaped, so a script's text starts no command."""
    from anymps.findings import Rule

    rule = Rule("MPS000", "a: b, c%", "w", "f", "s", None)
    finding = rule.finding(Site("/p/a,b:%\n::error::x.py", 3), what="50 % of it\r\n::warning::hi", count=1)
    recording = RecordingBuilder(meta={"directory": "/p"}).close()
    lines = "".join(report_pieces("github", Story.of(recording), [finding])).splitlines()
    assert lines[1:] == [
        "::error file=a%2Cb%3A%25%0A\\x3a%3Aerror%3A%3Ax.py,line=3,title=MPS000 a%3A b%2C c%25::"
        "50 %25 of it\\r\\n\\x3a:warning::hi%0AWhy: w%0AFix: f"
    ]


@pytest.mark.parametrize(
    ("suite", "status", "said"),
    [
        ({"tests": 3, "failed": 1}, 1, "1 of 3 tests would fail on M3 Pro 18GB."),
        ({"tests": 3}, 0, "3 tests would end as expected on M3 Pro 18GB."),
        ({"tests": 3}, 2, "The session did not finish: 3 tests ran on M3 Pro 18GB."),
        ({"tests": 0}, 5, "No test ran, so this says nothing about M3 Pro 18GB."),
    ],
)
def test_a_session_is_told_by_its_tests(suite: dict[str, object], status: int, said: str) -> None:
    """A report of a session speaks of its tests and its code, not of a script."""
    text = rendered("terminal", small(suite=suite, ending={"status": status}))
    assert said in text
    assert "script" not in text
    assert "Your code, line by line</h2>" in rendered("html", small(suite=suite, ending={"status": status}))
    none = RecordingBuilder(meta={**META, "suite": suite, "ending": {"status": status}}).close()
    if suite["tests"] and status < 2:
        assert "None of 3 tests used mps, so this says nothing about M3 Pro 18GB." in rendered("terminal", none)


WHY = "expected by m.txt:3 (test_it.py::test_load)"


def test_what_a_suite_expects_is_no_news() -> None:
    """An error that tests expect is suppressed in SARIF and no error there, and no annotation."""
    plain = refusing()
    row = {"file": plain.refusals()[0].site.file, "line": 14, "why": WHY}
    recording = refusing(
        ending={"status": 0},
        suite={"tests": 2, "excused": 1, "expected": [row, {"file": "other.py", "line": 14, "why": "no"}]},
    )
    (run,) = json.loads(rendered("sarif", recording))["runs"]
    (result,) = run["results"]
    assert (result["level"], result["suppressions"]) == (
        "note",
        [{"kind": "external", "status": "accepted", "justification": WHY}],
    )
    schema = json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.Draft4Validator(schema).validate({"version": "2.1.0", "runs": [run]})
    assert len(rendered("github", recording).splitlines()) == 1
    assert len(rendered("github", plain).splitlines()) == 2
    assert rendered("github", recording) == (
        "::notice title=anymps::2 tests would end as expected on M3 Pro 18GB, 1 of them with a failure. "
        "No findings. 1 more error is expected.\n"
    )
    for none in ({}, {"expected": []}, {"expected": [{}]}):
        assert len(rendered("github", refusing(suite=none)).splitlines()) == 2


if __name__ == "__main__":
    (DATA / "reports").mkdir(exist_ok=True)
    for recording_name, make in RECORDINGS.items():
        for form_name in FORMS:
            text = comparable(form_name, rendered(form_name, make()))
            expected_file(form_name, recording_name).write_text(text, encoding="utf-8")
    for text_name, make_text in TEXTS.items():
        expected_file("txt", text_name).write_text(make_text(), encoding="utf-8")
    for diff_name, pair in DIFFS.items():
        for form_name in ("html", "markdown"):
            text = comparable(form_name, diff_in(form_name, *pair()))
            expected_file(f"diff.{form_name}", diff_name).write_text(text, encoding="utf-8")
