"""What proves an edit: the runs before and after agree, its finding is gone and none is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from anymps.commands.fix import _checks
from anymps.commands.fix._mend import Mender
from anymps.commands.fix._runs import Tried
from anymps.commands.isolated._proof_session import Order
from anymps.findings import RULES, Finding
from anymps.findings.advice._user_line import without_read
from anymps.findings.edits import LineEdit, Safety
from anymps.fix import Budget, Cause, Disagreement, Edit, Program, Ran, edits_for, prove
from anymps.fix._same_run import disagreement
from anymps.forecast import HostTimes
from anymps.forecast._same_work import HostTime
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


def why(before: Ran, again: Ran | None, after: Ran, edits: Sequence[Edit]) -> str:
    found = disagreement(before, again, after, edits)
    return found.why if found is not None else ""


def test_all_at_once(program: Program, edits: Sequence[Edit]) -> None:
    """One run is enough where it agrees."""
    texts = []

    def run(changed: Program) -> Ran:
        texts.append(text_of(changed))
        return replace(BEFORE, rules=rules_of(text_of(changed)))

    proof = prove(program, edits, BEFORE, run)
    assert texts == ["o = Adam(p, fused=True)\no.zero_grad()\n"]
    assert [outcome.why for outcome in proof.outcomes] == ["", ""]
    assert text_of(proof.program) == texts[-1]


def test_a_second_run_tells_what_is_chance(program: Program, edits: Sequence[Edit]) -> None:
    """Only where numbers differ: the script once more as it is."""
    texts = []

    def run(changed: Program) -> Ran:
        texts.append(text_of(changed))
        return replace(BEFORE, printed=(0.25, 12.0 + len(texts)), rules=rules_of(text_of(changed)))

    proof = prove(program, edits, BEFORE, run)
    assert texts == ["o = Adam(p, fused=True)\no.zero_grad()\n", TEXT]
    assert [outcome.why for outcome in proof.outcomes] == ["", ""]


def test_the_halves_where_one_is_wrong(program: Program, edits: Sequence[Edit]) -> None:
    """What agrees by itself is kept."""

    def run(changed: Program) -> Ran:
        losses = (0.5, 0.3) if "fused" in text_of(changed) else (0.5, 0.25)
        return replace(BEFORE, rules=rules_of(text_of(changed)), losses=losses)

    proof = prove(program, edits, BEFORE, run)
    assert text_of(proof.program) == "o = Adam(p)\no.zero_grad()\n"
    assert {outcome.edit.label: outcome.why for outcome in proof.outcomes} == {
        "MPS812 at train.py:1": "losses differ: 0.3 instead of 0.25",
        "MPS811 at train.py:2": "",
    }
    assert proof.after is not None
    assert proof.after.losses == (0.5, 0.25)


def test_no_more_time_than_three_runs_and_a_fifth(program: Program, edits: Sequence[Edit]) -> None:
    """A fourth run does not begin; what was not proved by then says so."""
    lengths = []

    def run(changed: Program) -> Ran:
        lengths.append(100.0)
        losses = (0.5, 0.3) if "fused" in text_of(changed) else (0.5, 0.25)
        return replace(BEFORE, rules=rules_of(text_of(changed)), losses=losses, seconds=100.0)

    budget = Budget(3, spent=100.0, longest=100.0)
    proof = prove(program, edits, replace(BEFORE, seconds=100.0), run, None, budget)
    assert (len(lengths), budget.spent) == (2, 300.0)  # the second is the script once more as it is
    late = "losses differ: 0.3 instead of 0.25; not tried alone within the time of 3 runs (--runs allows more)"
    assert {outcome.why for outcome in proof.outcomes} == {late}
    assert text_of(proof.program) == TEXT
    more = prove(program, edits, BEFORE, run, None, Budget(6, spent=100.0, longest=100.0))
    assert text_of(more.program) == "o = Adam(p)\no.zero_grad()\n"


def test_what_speaks_against_one_edit_leaves_it_out(program: Program, edits: Sequence[Edit]) -> None:
    """The others need one more run, and it none."""
    texts = []

    def run(changed: Program) -> Ran:
        texts.append(text_of(changed))
        return replace(BEFORE, rules=rules_of(text_of(changed)) | {"MPS812": 1})

    proof = prove(program, edits, BEFORE, run)
    assert texts == ["o = Adam(p, fused=True)\no.zero_grad()\n", "o = Adam(p)\no.zero_grad()\n"]
    assert {outcome.edit.finding.id: outcome.why for outcome in proof.outcomes} == {
        "MPS812": "MPS812 is still reported",
        "MPS811": "",
    }


def test_what_does_not_hold_elsewhere_is_not_kept(program: Program, edits: Sequence[Edit]) -> None:
    """Without a GPU, or with one of the script's options."""

    def check(before: Program, after: Program) -> Disagreement | None:
        assert text_of(before) == TEXT
        return Disagreement("with --no-cuda the model is on mps instead of cpu") if "fused" in text_of(after) else None

    proof = prove(program, edits, BEFORE, lambda changed: replace(BEFORE, rules=rules_of(text_of(changed))), check)
    assert {outcome.edit.finding.id: outcome.why for outcome in proof.outcomes} == {
        "MPS812": "with --no-cuda the model is on mps instead of cpu",
        "MPS811": "",
    }


@pytest.mark.parametrize("by_device", [True, False])
def test_what_was_not_seen_is_not_kept(tmp_path: Path, by_device: bool) -> None:
    """An option is about edits that name a device, a run without a GPU about all. `unproved` has the open ones."""
    program, edits = training_edits(tmp_path, ("MPS409", 2), ("MPS812", 3))
    before = Ran("", (0.5,), (), {"MPS409": 1, "MPS812": 1})
    tried: list[str] = []

    def run(changed: Program) -> Ran:
        tried.append(text_of(changed))
        return replace(before, rules={})

    def check(before: Program, after: Program) -> Disagreement | None:
        unseen = not by_device or "mps" in text_of(after)
        return Disagreement("not seen", cause=Cause.NOT_SEEN, by_device=by_device) if unseen else None

    proof = prove(program, edits, before, run, check, Budget(runs=9))
    open_ones = ["MPS812", "MPS409"][by_device:]
    assert [outcome.edit.finding.id for outcome in proof.outcomes if outcome.cause is Cause.NOT_SEEN] == open_ones
    assert len(tried) == (2 if by_device else 1)
    assert ("fused" in text_of(proof.program), "mps" in text_of(proof.program)) == (by_device, False)
    assert ("fused" in text_of(proof.unproved), "mps" in text_of(proof.unproved)) == (True, True)


def test_lines_to_which_the_run_did_not_come(program: Program, edits: Sequence[Edit]) -> None:
    """They are changed in the unproved program alone."""
    reached = frozenset({(str(program.main.path.resolve()), 1)})
    proof = prove(
        program, edits, BEFORE, lambda changed: replace(BEFORE, rules=rules_of(text_of(changed)), reached=reached)
    )
    assert {outcome.edit.finding.id: (outcome.why, outcome.cause) for outcome in proof.outcomes} == {
        "MPS812": ("", None),
        "MPS811": ("the run did not reach its line", Cause.NOT_REACHED),
    }
    assert text_of(proof.program) == "o = Adam(p, fused=True)\no.zero_grad(set_to_none=False)\n"
    assert text_of(proof.unproved) == "o = Adam(p, fused=True)\no.zero_grad()\n"


@pytest.mark.parametrize(
    ("before", "after", "checked"),
    [("", "", True), ("E: a", "", True), ("E: a", "E: a", True), ("E: a", "E: b", False)],
)
def test_where_more_is_to_be_mended_nothing_is_tried_elsewhere(
    program: Program, edits: Sequence[Edit], before: str, after: str, checked: bool
) -> None:
    """A script that stops with another error than before has not come to what options would show."""
    seen: list[str] = []
    ran = replace(BEFORE, error=before)
    prove(
        program,
        edits,
        ran,
        lambda changed: replace(ran, error=after, rules=rules_of(text_of(changed))),
        lambda before, after: seen.append(text_of(after)),
    )
    assert bool(seen) is checked


@pytest.mark.parametrize(("line", "came"), [(1, False), (2, True), (3, True), (5, True), (6, False)])
def test_a_statement_over_several_lines_was_reached_at_any_of_them(tmp_path: Path, line: int, came: bool) -> None:
    """Of the changed script, where it has a line more: the first and the last among them, not those around it."""
    (tmp_path / "train.py").write_text("x = 1\no = Adam(\n    p,\n)\ny = 2\n")
    program = Program.read(tmp_path / "train.py")
    edits, _ = edits_for(
        [RULES["MPS812"].finding(Site(str(program.main.path), 2, "", ""), what="It.", count=1)], program
    )
    reached = frozenset({(str(program.main.path.resolve()), line)})
    ran = Ran("", (0.5,), (), {"MPS812": 1}, reached=reached)
    proof = prove(program, edits, ran, lambda changed: replace(ran, rules={}))
    assert [outcome.cause is None for outcome in proof.outcomes] == [came]
    assert ("fused" in text_of(proof.program)) is came


@pytest.mark.parametrize(("line", "came"), [(1, False), (2, True), (3, True), (4, True), (5, True), (6, False)])
def test_a_statement_in_two_branches_was_reached_where_mps_is(tmp_path: Path, line: int, came: bool) -> None:
    """The old one stands in the branch for other machines, to which no run on mps comes."""
    (tmp_path / "train.py").write_text("import torch\ntorch.cuda.empty_cache()\ny = 2\n")
    program = Program.read(tmp_path / "train.py")
    site = Site(str(program.main.path), 2, "", "torch.cuda.empty_cache()")
    edits, _ = edits_for([RULES["MPS409"].finding(site, what="It.", count=1)], program)
    reached = frozenset({(str(program.main.path.resolve()), line)})
    ran = Ran("", (0.5,), (), {"MPS409": 1}, reached=reached)
    proof = prove(program, edits, ran, lambda changed: replace(ran, rules={}))
    assert [outcome.cause is None for outcome in proof.outcomes] == [came]


@pytest.mark.parametrize(
    ("trail", "now", "why"),
    [
        ((("a.py", 3),), (("a.py", 3),), "losses differ: 9 instead of 0.5"),
        ((), (("a.py", 9),), "losses differ: 9 instead of 0.5"),
        ((("a.py", 3),), (), "losses differ: 9 instead of 0.5"),
        ((("a.py", 3),), (("a.py", 2),), "the script stops earlier at a.py:2: E: no"),
        ((("a.py", 3),), (("b.py", 2),), "losses differ: 9 instead of 0.5"),
        ((("a.py", 3), ("b.py", 5)), (("a.py", 3), ("b.py", 4)), "the script stops earlier at b.py:4: E: no"),
    ],
)
def test_the_same_error_at_another_place(
    edits: Sequence[Edit], trail: tuple[tuple[str, int], ...], now: tuple[tuple[str, int], ...], why: str
) -> None:
    """By the first line of the project that differs; where one of the two has none, the words alone tell."""
    before = Ran("E: no", (0.5,), (), {}, trail=trail)
    after = Ran("E: no", (9.0,), (), {}, trail=now)
    found = disagreement(before, None, after, edits)
    assert found is not None
    assert found.why == why


def test_several_that_something_speaks_against_are_tried_in_halves(tmp_path: Path) -> None:
    """The others are proved first, in one run; of three lines two are guilty, and each is tried by itself."""
    (tmp_path / "train.py").write_text("o = Adam(p)\no = Adam(q)\no.zero_grad(set_to_none=False)\n")
    program = Program.read(tmp_path / "train.py")
    places = (("MPS812", 1), ("MPS812", 2), ("MPS811", 3))
    found = [
        RULES[rule].finding(Site(str(program.main.path), line, "", ""), what="It.", count=1) for rule, line in places
    ]
    edits, _ = edits_for(found, program)
    before = Ran("", (0.5,), (), {"MPS811": 1, "MPS812": 2}, seconds=1.0)
    texts: list[str] = []

    def run(changed: Program) -> Ran:
        texts.append(text_of(changed))
        return replace(before, rules={"MPS812": 2})

    proof = prove(program, edits, before, run, budget=Budget(runs=9, longest=1.0))
    assert [text.count("fused") for text in texts] == [2, 0, 1, 1]
    assert ["set_to_none" in text for text in texts] == [False] * 4
    assert text_of(proof.program) == "o = Adam(p)\no = Adam(q)\no.zero_grad()\n"


@pytest.mark.parametrize(("left", "why"), [(0, ""), (3, ""), (4, "MPS812 is still reported")])
def test_each_edit_answers_for_one_finding(tmp_path: Path, left: int, why: str) -> None:
    """Two edits of five findings: three may be left; an edit that stands for no finding of its own asks for none."""
    (tmp_path / "train.py").write_text("o = Adam(p)\n" * 3)
    program = Program.read(tmp_path / "train.py")
    main = str(program.main.path)
    found = [
        RULES["MPS812"].finding(Site(main, line, "", ""), what="It.", count=count) for line, count in ((1, 1), (2, 4))
    ]
    found.append(RULES["MPS812"].finding(Site(main, 3, "", ""), what="It.", count=0))
    edits, _ = edits_for(found, program)
    before = Ran("", (0.5,), (), {"MPS812": 5})
    against = disagreement(before, None, replace(before, rules={"MPS812": left}), edits)
    assert (against.why if against else "") == why
    assert against is None or against.guilty == tuple(edits)


def test_the_same_error_in_the_same_place_is_no_progress(edits: Sequence[Edit]) -> None:
    """New findings count then as in a run that ends well; they do not where the script got further."""
    before = Ran("E: no", (0.5,), (), {}, trail=(("a.py", 3),))
    after = replace(before, rules={"MPS120": 1})
    found = disagreement(before, None, after, edits)
    assert found is not None
    assert found.why == "it causes MPS120"
    for further in (replace(after, trail=(("a.py", 4),)), replace(after, error="E: another"), replace(after, error="")):
        assert disagreement(before, None, further, edits) is None
    for alike in (replace(after, trail=()), replace(after, error="E: no")):
        assert disagreement(before, None, alike, edits) is not None
    assert disagreement(replace(before, trail=()), None, after, edits) is not None


def test_the_next_line_that_stops_is_another_finding(program: Program, edits: Sequence[Edit]) -> None:
    """Where the script got further; at the line of the first finding the rule must be silent, wherever that is now."""
    main = str(program.main.path)
    before = Ran("E: no", (0.5,), (), {"MPS811": 1, "MPS812": 1}, trail=((main, 1),))
    after = replace(before, trail=((main, 8),), rules={"MPS812": 1}, found=frozenset({("MPS812", main, 8)}))
    moved = {8: 9, 4: 2, 3: 1}

    def old_line(_: str, line: int) -> int:
        return moved[line]

    assert disagreement(before, None, after, edits, old_line) is None
    for there, rule, line in ((3, "MPS812", 1), (4, "MPS811", 2)):
        told = replace(after, found=frozenset({(rule, main, there)}))
        found = disagreement(before, None, told, edits, old_line)
        assert found is not None
        assert (found.why, [edit.line for edit in found.guilty]) == (f"{rule} is still reported", [line])


def test_a_stop_on_mps_has_its_own_cause(tmp_path: Path) -> None:
    """It speaks against the edits that choose mps alone, which are not tried again; others are proved without them."""
    program, edits = training_edits(tmp_path, ("MPS409", 2), ("MPS812", 3))
    before = Ran("", (0.5,), (), {"MPS409": 1, "MPS812": 1})
    tried: list[str] = []

    def run(changed: Program) -> Ran:
        tried.append(text_of(changed))
        on_mps = "mps" in text_of(changed)
        return replace(before, error="TypeError: no" if on_mps else "", used=on_mps, rules={})

    proof = prove(program, edits, before, run)
    assert {outcome.edit.finding.id: outcome.cause for outcome in proof.outcomes} == {
        "MPS409": Cause.STOPS_ON_MPS,
        "MPS812": None,
    }
    assert len(tried) == 2
    there = replace(before, used=True)
    stopped = disagreement(there, None, replace(there, error="TypeError: no"), edits)
    assert stopped is not None
    assert stopped.cause is Cause.DIFFERS


def test_what_was_hidden_on_the_cpu_is_not_caused(edits: Sequence[Edit]) -> None:
    """A line that chooses mps shows what a Mac has to say of the other lines; on mps before, it is new."""
    before = Ran("", (0.5,), (), {}, places=("cpu",))
    after = replace(before, rules={"MPS201": 1}, places=("mps",))
    assert disagreement(before, None, after, edits) is None
    for places in (("mps",), ("cpu", "mps"), ()):
        found = disagreement(replace(before, places=places), None, after, edits)
        assert found is not None
        assert found.why == "it causes MPS201"


def test_nothing_is_kept_where_nothing_is_proved(program: Program, edits: Sequence[Edit]) -> None:
    """The script is as it was."""
    proof = prove(program, edits, BEFORE, lambda changed: BEFORE)
    assert text_of(proof.program) == TEXT
    assert proof.after is None
    assert {outcome.why for outcome in proof.outcomes} == {"MPS811 is still reported", "MPS812 is still reported"}


FIXED = {"MPS811": 0, "MPS812": 0}


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (Ran("", (0.5, 0.25), (0.25, 12.0), FIXED), ""),
        (Ran("", (0.5, 0.250001), (0.25, 99.0), FIXED), ""),  # the second number is another in every run
        (Ran("", (0.5,), (0.25, 12.0), FIXED), "1 losses instead of 2"),
        (Ran("", (0.5, float("nan")), (0.25, 12.0), FIXED), "losses differ: nan instead of 0.25"),
        (Ran("", (0.5, 0.25), (0.26, 12.0), FIXED), "printed numbers differ: 0.26 instead of 0.25"),
        (Ran("", (0.5, 0.25), (0.25, 12.0), {"MPS102": 1}), "it causes MPS102"),
        (Ran("NameError: x", (0.5, 0.25), (0.25, 12.0), FIXED), "the script stops: NameError: x"),
        (
            Ran("NameError: x", (0.5,), (0.25,), FIXED, trail=(("/p/train.py", 9), ("/p/net.py", 3))),
            "the script stops at net.py:3: NameError: x",
        ),
    ],
)
def test_what_disagrees(edits: Sequence[Edit], after: Ran, why: str) -> None:
    """Told in one clause."""
    found = disagreement(BEFORE, replace(BEFORE, printed=(0.25, 13.0)), after, edits)
    assert (found.why if found is not None else "") == why


def test_a_script_that_stopped_gets_further(edits: Sequence[Edit]) -> None:
    """Another error is one that the first one hid; what came before it is as it was."""
    stopped = replace(BEFORE, error="TypeError: float64", losses=(0.5,), printed=(1.0,), trail=(("train.py", 9),))
    assert why(stopped, None, Ran("", (0.5, 0.4), (1.0, 2.0), FIXED), edits) == ""
    assert why(stopped, None, Ran("ValueError: y", (0.5, 0.4), (1.0,), FIXED), edits) == ""
    assert why(stopped, None, Ran("", (0.6, 0.4), (1.0,), FIXED), edits) == "losses differ: 0.6 instead of 0.5"
    without, there = (f"the script stops earlier{where}: NameError: z" for where in ("", " at train.py:3"))
    assert why(stopped, None, Ran("NameError: z", (), (1.0,), FIXED), edits) == without
    assert why(stopped, None, Ran("NameError: z", (0.5,), (1.0,), FIXED, trail=(("train.py", 3),)), edits) == there
    assert why(stopped, None, Ran("NameError: z", (0.5,), (1.0,), FIXED, trail=(("train.py", 12),)), edits) == ""


def test_a_number_makes_no_other_error(edits: Sequence[Edit]) -> None:
    """Two workers that die have two process ids; the same words at another line are another error."""
    stopped = replace(BEFORE, error="RuntimeError: worker (pid 28250) exited", rules={"MPS802": 1, **BEFORE.rules})
    guard = [replace(edits[0], finding=RULES["MPS802"].finding(edits[0].finding.site, what="It.", count=1))]
    again = replace(stopped, error="RuntimeError: worker (pid 30047) exited", rules={"MPS802": 0}, losses=(0.5, 0.3))
    assert why(stopped, None, again, guard) == "losses differ: 0.3 instead of 0.25"
    here, there = (("train.py", 3),), (("train.py", 7),)
    assert why(replace(stopped, trail=here), None, replace(again, trail=there, losses=(0.5, 0.25)), guard) == ""


def test_a_script_that_ends_with_its_own_exception(edits: Sequence[Edit]) -> None:
    """It is compared up to there."""
    stopped = replace(BEFORE, error="RuntimeError: no more data", trail=(("train.py", 9),))
    assert why(stopped, None, replace(stopped, rules=FIXED), edits) == ""
    assert why(stopped, None, replace(stopped, rules={"MPS102": 1}), edits) == "it causes MPS102"
    differs = "losses differ: 0.3 instead of 0.25"
    assert why(stopped, None, replace(stopped, rules=FIXED, losses=(0.5, 0.3)), edits) == differs
    assert why(stopped, None, stopped, edits) in ("MPS811 is still reported", "MPS812 is still reported")


HOST = HostTimes((HostTime("kernel aten::mm 3", 1e-3, None),), 0.25)


class Runs:
    """Runs nothing: what a program does is read off its text."""

    words = ("train.py",)
    order = Order("")

    def __init__(self, found: Sequence[Finding], rules: str = "") -> None:
        self.found = tuple(found)
        self.rules = rules
        self.tried: list[str] = []
        self.like: list[HostTimes | None] = []

    def run(
        self, changed: Program, keep: object = None, like: HostTimes | None = None
    ) -> tuple[Ran, tuple[Finding, ...]]:
        self.like.append(like)
        rules = rules_of(text_of(changed))
        rules |= {self.rules: max(rules.values())} if self.rules else {}
        return replace(BEFORE, rules=rules, host=HOST), self.found

    def try_out(self, changed: Program, **_: object) -> Tried:
        self.tried.append(text_of(changed))
        return Tried(BEFORE, ("mps",))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_checks, "_CUDA_DEVICE", str(tmp_path / "none"))  # on any machine as on one without a GPU


@pytest.mark.usefixtures("cache")
def test_what_another_change_has_mended_is_not_suggested(
    program: Program, edits: Sequence[Edit], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what the changed script is still told of. Each run is told of before it begins."""
    other = RULES["MPS201"].finding(edits[0].finding.site, what="It.", count=1)
    runs = Runs([*(edit.finding for edit in edits), other], rules="MPS201")
    mended = Mender(program, cast(Any, runs), Budget()).mend()
    after = "o = Adam(p, fused=True)\no.zero_grad()\n"
    assert text_of(mended.program) == after
    assert (len(mended.proofs), mended.suggestions) == (1, [])
    assert runs.like == [None, HOST]  # what is not changed takes the same in both columns of the table
    assert sorted(runs.tried) == sorted([TEXT, after])  # without a GPU
    assert mended.notes == ["without a GPU the first 2 losses agree"]
    assert capsys.readouterr().err.splitlines() == [
        "anymps: run 1 of 3: the unchanged script",
        "anymps: run 2 of 3: with up to 2 changes",
        "anymps: run 3 of 3, about 10 s: the first steps without a GPU",
    ]


TRAINING = """import torch
device = torch.device("cuda")
o = Adam(p)
x = loss.item()
total += loss.item()
"""


def training_edits(folder: Path, *places: tuple[str, int]) -> tuple[Program, list[Edit]]:
    """A script, and the edits of findings at its lines."""
    (folder / "train.py").write_text(TRAINING)
    program = Program.read(folder / "train.py")
    lines = TRAINING.splitlines()
    found = [
        RULES[rule].finding(
            Site(str(program.main.path), line, "", lines[line - 1]),
            what="It.",
            count=1,
            edit=RULES[rule].edit or LineEdit(without_read),
            safety=RULES[rule].safety if RULES[rule].edit else Safety.PROVED,
        )
        for rule, line in places
    ]
    return program, edits_for(found, program)[0]


def test_a_wait_that_only_moved_speaks_against_the_edits_of_waits(tmp_path: Path) -> None:
    """A value that is kept as a tensor is read where it is printed: the device and the optimizer are none of that."""
    _, edits = training_edits(tmp_path, ("MPS409", 2), ("MPS812", 3), ("MPS201", 4))
    before = Ran("", (0.5,), (), {"MPS409": 1, "MPS812": 1, "MPS201": 1})
    found = disagreement(before, None, replace(before, rules={"MPS202": 1}), edits)
    assert found is not None
    assert (found.why, found.chance, [edit.label for edit in found.guilty]) == (
        "it causes MPS202",
        False,
        ["MPS201 at train.py:4"],
    )
    found = disagreement(before, None, replace(before, rules={"MPS505": 1}), edits)
    assert (found is not None and found.chance, found and found.guilty) == (True, ())


def test_what_is_safe_is_tried_apart(tmp_path: Path) -> None:
    """Where something speaks against all edits together, those that mean the same everywhere come first."""
    program, edits = training_edits(tmp_path, ("MPS409", 2), ("MPS812", 3), ("MPS201", 5))
    before = Ran("", (0.5,), (), {"MPS409": 1, "MPS812": 1, "MPS201": 1}, seconds=100.0)
    tried = []

    def run(changed: Program) -> Ran:
        text = text_of(changed)
        told = [name for name, mark in (("device", "mps"), ("optimizer", "fused"), ("wait", "detach")) if mark in text]
        tried.append(told)
        return replace(before, losses=(0.7,) if "fused" in text else (0.5,), rules={})

    proof = prove(program, edits, before, run, budget=Budget(longest=100.0, spent=100.0))
    assert tried == [["device", "optimizer", "wait"], ["device"]]
    assert [(outcome.edit.finding.id, outcome.why) for outcome in proof.outcomes] == [
        ("MPS201", "losses differ: 0.7 instead of 0.5; not tried alone within the time of 3 runs (--runs allows more)"),
        ("MPS812", "losses differ: 0.7 instead of 0.5; not tried alone within the time of 3 runs (--runs allows more)"),
        ("MPS409", ""),
    ]


def test_a_model_that_left_mps_is_no_proof(edits: Sequence[Edit]) -> None:
    """`if args.device == "cuda": model.cuda()` after a change of the default: the losses agree on the CPU, too."""
    there = replace(BEFORE, places=("mps",))
    here = replace(BEFORE, rules={}, places=("cpu",))
    assert why(there, None, here, edits) == "the model is on cpu instead of mps"
    assert why(here, None, replace(there, rules={}), edits) == ""
    assert why(there, None, replace(here, places=()), edits) == ""
