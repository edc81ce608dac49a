"""What proves an edit: the runs before and after agree, its finding is gone and none is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from anymps.commands._fix import _mend
from anymps.findings import RULES, Finding
from anymps.fix import Edit, Program, Ran, edits_for, prove
from anymps.fix._proof import disagreement
from anymps.record import Site

TEXT = "o = Adam(p)\no.zero_grad(set_to_none=False)\n"
BEFORE = Ran("", (0.5, 0.25), (0.25, 12.0), {"MPS811": 1, "MPS812": 1})


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "train.py").write_text(TEXT)
    return Program.read(tmp_path / "train.py")


@pytest.fixture
def edits(program: Program) -> list[Edit]:
    """One for each of its lines."""
    places = (("MPS812", 1), ("MPS811", 2))
    found = [
        RULES[rule].finding(Site(str(program.main.path), line, "", ""), what="It.", count=1) for rule, line in places
    ]
    return edits_for(found, program)[0]


def text_of(program: Program) -> str:
    return program.script(program.main.path).text


def rules_of(text: str) -> dict[str, int]:
    return {"MPS811": int("set_to_none" in text), "MPS812": int("fused" not in text)}


def test_all_at_once(program: Program, edits: Sequence[Edit]) -> None:
    """Two runs are enough: the script once more as it is, and with all edits."""
    texts = []

    def run(changed: Program) -> Ran:
        texts.append(text_of(changed))
        return replace(BEFORE, rules=rules_of(text_of(changed)))

    proof = prove(program, edits, BEFORE, run)
    assert texts == [TEXT, "o = Adam(p, fused=True)\no.zero_grad()\n"]
    assert [it.why for it in proof.outcomes] == ["", ""]
    assert text_of(proof.program) == texts[-1]


def test_one_after_the_other_where_one_is_wrong(program: Program, edits: Sequence[Edit]) -> None:
    """What agrees by itself is kept."""

    def run(changed: Program) -> Ran:
        losses = (0.5, 0.3) if "fused" in text_of(changed) else (0.5, 0.25)
        return replace(BEFORE, rules=rules_of(text_of(changed)), losses=losses)

    proof = prove(program, edits, BEFORE, run)
    assert text_of(proof.program) == "o = Adam(p)\no.zero_grad()\n"
    assert {it.edit.label: it.why for it in proof.outcomes} == {
        "MPS812 at train.py:1": "losses differ: 0.3 instead of 0.25",
        "MPS811 at train.py:2": "",
    }
    assert proof.after is not None
    assert proof.after.losses == (0.5, 0.25)


def test_nothing_is_kept_where_nothing_is_proved(program: Program, edits: Sequence[Edit]) -> None:
    """The script is as it was."""
    proof = prove(program, edits, BEFORE, lambda changed: BEFORE)
    assert text_of(proof.program) == TEXT
    assert proof.after is None
    assert {it.why for it in proof.outcomes} == {"MPS811 is still told", "MPS812 is still told"}


FIXED = {"MPS811": 0, "MPS812": 0}


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (Ran("", (0.5, 0.25), (0.25, 12.0), FIXED), ""),
        (Ran("", (0.5, 0.250001), (0.25, 99.0), FIXED), ""),  # the second number is another in every run
        (Ran("", (0.5,), (0.25, 12.0), FIXED), "1 losses instead of 2"),
        (Ran("", (0.5, float("nan")), (0.25, 12.0), FIXED), "losses differ: nan instead of 0.25"),
        (Ran("", (0.5, 0.25), (0.26, 12.0), FIXED), "printed numbers differ: 0.26 instead of 0.25"),
        (Ran("", (0.5, 0.25), (0.25, 12.0), {"MPS102": 1}), "it brings MPS102"),
        (Ran("NameError x", (0.5, 0.25), (0.25, 12.0), FIXED), "the script stops: NameError x"),
    ],
)
def test_what_disagrees(edits: Sequence[Edit], after: Ran, why: str) -> None:
    """Told in one clause."""
    assert disagreement(BEFORE, replace(BEFORE, printed=(0.25, 13.0)), after, edits) == why


def test_a_script_that_stopped_gets_further(edits: Sequence[Edit]) -> None:
    """There are no losses to compare; another error is one that the first one hid."""
    stopped = replace(BEFORE, error="TypeError float64", losses=())
    assert disagreement(stopped, stopped, Ran("", (0.5,), (), FIXED), edits) == ""
    assert disagreement(stopped, stopped, Ran("ValueError y", (), (), FIXED), edits) == ""
    still = "the script still stops: TypeError float64"
    assert disagreement(stopped, stopped, Ran("TypeError float64", (), (), FIXED), edits) == still


def test_what_another_change_has_mended_is_not_suggested(program: Program, edits: Sequence[Edit]) -> None:
    """Only what the changed script is still told of."""
    other = RULES["MPS201"].finding(edits[0].finding.site, what="It.", count=1)

    class Runs:
        def run(self, changed: Program) -> tuple[Ran, tuple[Finding, ...]]:
            rules = rules_of(text_of(changed))
            rules["MPS201"] = max(rules.values())
            return replace(BEFORE, rules=rules), (*(it.finding for it in edits), other)

    fixed, proofs, suggestions = _mend(program, cast(Any, Runs()))
    assert text_of(fixed) == "o = Adam(p, fused=True)\no.zero_grad()\n"
    assert (len(proofs), suggestions) == (1, [])
