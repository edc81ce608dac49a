"""A rule is one file: found by its id, and known to everything as soon as it lies in `findings/rules`."""

from __future__ import annotations

import importlib
import shutil
import types
from bisect import bisect_right
from pathlib import Path

import pytest

import anymps
from anymps.findings import RULES
from anymps.findings._catalogue import by_id, rules_of
from anymps.rules.faults import all_hazards
from processes import run_python

SOURCE = Path(anymps.__file__).parent
FILES = sorted(path.stem for path in (SOURCE / "findings" / "rules").glob("_mps*.py"))

NEW_RULE = '''
"""MPS998: a rule that is one file."""

from collections.abc import Iterator

from anymps.findings._model import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.record import Recording, Site

NEW = Rule(
    id="MPS998",
    title="Something new",
    severity=Severity.WARNING,
    why="Because.",
    fix="Do this.",
    source="a file of torch 2.13",
    example=Example(bad="x = 1", good="x = 2"),
)


def find(recording: Recording) -> Iterator[Finding]:
    """One for every run."""
    yield NEW.finding(Site("train.py", 3), what="It was new.", count=1)
'''


def test_a_rule_lies_where_its_id_says() -> None:
    """The last file whose number is not above a rule's holds it; known bugs are rows, which one file reads."""
    faults = {hazard.id for hazard in all_hazards()}
    for identity in RULES.keys() - faults:
        name = FILES[bisect_right(FILES, f"_{identity.lower()}~") - 1]
        module = importlib.import_module(f"anymps.findings.rules.{name}")
        assert identity in [rule.id for rule in rules_of(module)], f"{identity} is not in {name}.py"


def test_a_file_is_named_by_its_first_rule() -> None:
    """And its first line says which rules are in it."""
    for name in FILES:
        module = importlib.import_module(f"anymps.findings.rules.{name}")
        own = [rule.id for rule in rules_of(module)]
        first, last = own[0], own[-1]
        assert name.startswith(f"_{first.lower()}_")
        assert own == sorted(own)
        heading = str(module.__doc__).splitlines()[0].partition(":")[0]
        assert heading.startswith(first), f"{name}.py: {heading}"
        assert heading.endswith(last), f"{name}.py: {heading}"


def test_a_number_that_is_taken_is_told() -> None:
    """Two files with one id are named, both, before any rule is applied."""
    (rule,) = (rule for rule in RULES.values() if rule.id == "MPS812")
    first, second = (types.ModuleType(f"anymps.{name}") for name in ("_one", "_two"))
    first.RULE = second.RULE = rule  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError) as caught:
        by_id([first, second])
    assert str(caught.value) == "anymps: MPS812 in _two.py is taken: _one.py has it. Choose a free number."


def test_a_new_rule_is_one_file(tmp_path: Path) -> None:
    """A file beside the others is listed, applied and explained, and reports without such findings do not know it."""
    shutil.copytree(SOURCE, tmp_path / "anymps", ignore=shutil.ignore_patterns("native", "__pycache__"))
    (tmp_path / "anymps" / "findings" / "rules" / "_mps998_new.py").write_text(NEW_RULE)
    result = run_python(f"""
        import json, sys
        sys.path.insert(0, {str(tmp_path)!r})
        from anymps.findings import RULES, Story, find, nearest_rule
        from anymps.record import RecordingWriter
        from anymps.report import report_pieces, rule_page
        recording = RecordingWriter.in_memory({{"virtual": True, "mac": "M1 8GB"}}).recording()
        found = find(recording)
        print([(it.id, it.what) for it in found], list(RULES)[-1], nearest_rule("MPS989"))
        print(rule_page(RULES["MPS998"]).splitlines()[0])
        for findings in (found, []):
            log = json.loads("".join(report_pieces("sarif", Story.of(recording), findings)))
            print([rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]])
    """)
    assert result.lines == [
        "[('MPS998', 'It was new.')] MPS998 MPS998",
        "# MPS998: Something new",
        "['MPS998']",
        "[]",
    ]
