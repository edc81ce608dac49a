"""How a script is mended beyond the line that stops it first: from line to line, and once it chooses mps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anymps._settings import Settings
from anymps.commands.fix import _checks
from anymps.commands.fix._command import _tell
from anymps.commands.fix._mend import Mender
from anymps.commands.fix._onwards import mend_on, result_alone
from anymps.commands.fix._runs import Runs, Tried
from anymps.commands.isolated._proof_session import Order
from anymps.findings import RULES, Finding
from anymps.fix import Budget, Cause, Program, Ran
from anymps.record import Site

TEXT = "import torch\nm = x.cuda()\no = Adam(p)\no = Adam(q)\no = Adam(r)\n"
CHOOSES = 'import torch\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\no = Adam(p)\n'
NO = "TypeError: Cannot convert"


class FakeRuns(Runs):
    """Runs nothing. The first `.cuda()` stops a script where nothing answers for CUDA, and on mps the first `Adam`
    that is not fused, and `stop()`. A line with `"mps"` brings it to mps, and so do answers for CUDA.
    """

    def run(self, program: Program, keep: Any = None, like: Any = None) -> tuple[Ran, tuple[Finding, ...]]:
        ran, rule = self._ran(program, bool(self.order.asked.cuda_as_mps))
        found = self._findings(program, ran, rule)
        places = frozenset((one.id, one.site.file, one.site.line) for one in found)
        return replace(ran, rules={one.id: 1 for one in found}, found=places, seconds=1.0), found

    def try_out(self, program: Program, *, device: str = "mps", cuda_as_mps: bool | None = None, **_: Any) -> Tried:
        if device == "cpu":
            return Tried(Ran("", (0.5,), (), {}), ("cpu",))
        return Tried(self._ran(program, bool(self.order.asked.cuda_as_mps and cuda_as_mps is not False))[0], ("mps",))

    def _ran(self, program: Program, answers: bool) -> tuple[Ran, str]:
        text = program.script(program.main.path).text
        on_mps = answers or '"mps"' in text
        for number, line in enumerate(text.splitlines(), 1):
            stops = (
                ("AssertionError: no CUDA", "MPS409") if ".cuda()" in line and not answers
                else (NO, "MPS812") if "Adam" in line and "fused" not in line and on_mps
                else ("ValueError: stop", "") if "stop()" in line and on_mps
                else None
            )  # fmt: skip
            if stops is not None:
                return Ran(stops[0], (), (), {}, trail=((str(program.main.path), number),), used=on_mps), stops[1]
        return Ran("", (0.5,), (), {}, used=on_mps, places=("mps" if on_mps else "cpu",)), ""

    def _findings(self, program: Program, ran: Ran, rule: str) -> tuple[Finding, ...]:
        main = str(program.main.path)
        lines = [(rule, ran.trail[-1][1])] if rule else []
        lines += [("MPS409", n) for n in program.main.lines_with("if torch.cuda") if program.script(
            program.main.path).line(n).startswith('device = "cuda"')]  # fmt: skip
        return tuple(
            RULES[one].finding(
                Site(main, line, "<module>", program.script(program.main.path).line(line)), what="It.", count=1
            )
            for one, line in lines
        )


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_checks, "_CUDA_DEVICE", str(tmp_path / "none"))


def program_of(folder: Path, text: str) -> Program:
    (folder / "train.py").write_text(text)
    return Program.read(folder / "train.py")


def text_of(program: Program) -> str:
    return program.script(program.main.path).text


def test_from_one_line_that_stops_to_the_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one rule and with the same words, each in a round of its own. Lines are those of the script as it was."""
    program = program_of(tmp_path, TEXT + "stop()\n")
    mended = Mender(program, FakeRuns(("train.py",), Order(""), 600), Budget()).mend()
    assert [(one.edit.finding.id, one.edit.line) for one in mended.kept] == [
        ("MPS409", 2),
        ("MPS812", 3),
        ("MPS812", 4),
        ("MPS812", 5),
    ]
    assert text_of(mended.program).count("fused=True") == 3
    assert mended.suggestions == []
    capsys.readouterr()
    _tell(mended, [])
    assert capsys.readouterr().err.splitlines() == [
        "anymps: 4 changes proven: MPS409 in line 2, MPS812 in lines 3, 4 and 5",
        "  before, the script stopped at train.py:2: AssertionError: no CUDA",
        "  after, it stops at train.py:6: ValueError: stop",
        "  without a GPU the loss agrees",
    ]


def test_a_line_is_changed_for_one_finding_after_the_other(tmp_path: Path) -> None:
    """In rounds of their own; what a run spoke against is not tried again."""
    line = "torch.optim.Adam(p, foreach=o.zero_grad(set_to_none=False))\n"
    program = program_of(tmp_path, f"import torch\n{line}o = Adam(q)\n")
    texts: list[str] = []

    class OneLine(FakeRuns):
        def run(self, program: Program, keep: Any = None, like: Any = None) -> tuple[Ran, tuple[Finding, ...]]:
            text = text_of(program)
            texts.append(text)
            lines = text.splitlines()
            rules = [("MPS811", 2)] if "set_to_none" in lines[1] else []
            rules += [("MPS812", number) for number in (2, 3) if "fused" not in lines[number - 1]]
            main = str(program.main.path)
            found = [
                RULES[rule].finding(Site(main, number, "", lines[number - 1]), what="It.", count=1)
                for rule, number in rules
            ]
            losses = (0.7,) if "fused" in lines[2] else (0.5,)
            told = {"MPS811": 0, "MPS812": 0}
            for one in found:
                told[one.id] += 1
            return Ran("", losses, (), told, used=True, places=("mps",)), tuple(found)

    runs = OneLine(("train.py",), Order(""), 600)
    mended = Mender(program, runs, Budget(runs=20)).mend()
    lines = text_of(mended.program).splitlines()
    assert ("set_to_none" not in lines[1], "fused=True" in lines[1], "fused" not in lines[2]) == (True, True, True)
    assert [(one.finding.site.line, one.why) for one in mended.suggestions] == [
        (3, "losses differ: 0.7 instead of 0.5"),
    ]
    assert ["fused" in text.splitlines()[2] for text in texts].count(True) == 2  # together, and alone


def test_what_was_refused_on_the_cpu_is_tried_again_on_mps(tmp_path: Path) -> None:
    """The runs that are compared are others then."""
    program = program_of(tmp_path, CHOOSES)
    texts: list[str] = []

    class Moving(FakeRuns):
        def run(self, program: Program, keep: Any = None, like: Any = None) -> tuple[Ran, tuple[Finding, ...]]:
            text = text_of(program)
            texts.append(text)
            main, lines, on_mps = str(program.main.path), text.splitlines(), '"mps"' in text
            rules = ([] if on_mps else [("MPS409", 2)]) + ([] if "fused" in text else [("MPS812", 3)])
            found = [
                RULES[rule].finding(Site(main, number, "", lines[number - 1]), what="It.", count=1)
                for rule, number in rules
            ]
            told = {one.id: 1 for one in found} | ({"MPS812": 1} if len(texts) == 2 else {})
            return Ran("", (0.5,), (), told, used=on_mps, places=("mps" if on_mps else "cpu",)), tuple(found)

    mended = Mender(program, Moving(("train.py",), Order(""), 600), Budget(runs=20)).mend()
    assert ["fused" in text for text in texts] == [False, True, False, True]
    assert ("fused" in text_of(mended.program), mended.suggestions) == (True, [])


def test_a_run_that_got_further_costs_no_time(tmp_path: Path) -> None:
    """Each shows what none before it could, and there are at most so many rounds."""
    program = program_of(tmp_path, TEXT + "o = Adam(s)\n" * 30)
    budget = Budget()
    mended = Mender(program, FakeRuns(("train.py",), Order(""), 600), budget).mend()
    assert len(mended.proofs) == 20
    assert budget.free == 20.0


def done(tmp_path: Path, text: str, budget: Budget | None = None, **asked: Any) -> Any:
    program = program_of(tmp_path, text)
    order = Order("", Settings(**asked))
    return mend_on(program, FakeRuns(("train.py",), order, 600), budget or Budget())


def test_a_script_that_stops_once_it_chooses_mps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What stops it there is mended too, and all of it is kept where it runs on mps by itself then."""
    made = done(tmp_path, CHOOSES)
    assert text_of(made.mended.program) == (
        'import torch\ndevice = "mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() '
        'else "cpu"\no = Adam(p, fused=True)\n'
    )
    assert (result_alone(made.alone, ""), made.note) == ("the changed script runs on mps", "")
    lines = capsys.readouterr().err.splitlines()
    at = lines.index(f"anymps: on mps the script stops at train.py:3: {NO}")
    assert lines[at + 1] == "anymps: going on from there, with mps in place of CUDA"
    _tell(made.mended, [], "on mps, ")
    assert f"  before, on mps, the script stopped at train.py:3: {NO}" in capsys.readouterr().err.splitlines()
    assert lines[at + 2] == "anymps: run 3 of 6: the unchanged script"  # it counts on


@pytest.mark.parametrize(
    ("text", "budget", "note"),
    [
        (
            CHOOSES + 'if device != "cpu":\n    stop()\n',
            Budget(),
            "the choice of mps is not changed: with 2 changes (--cuda-as-mps shows them) the script stops at "
            "train.py:5: ValueError: stop",
        ),
        (
            CHOOSES,
            Budget(spent=100.0),
            "no time was left to look at the line that stops the script on mps (--runs allows more)",
        ),
    ],
)
def test_a_choice_of_mps_that_stops_is_not_kept(tmp_path: Path, text: str, budget: Budget, note: str) -> None:
    """A script that ran on the CPU runs there still."""
    made = done(tmp_path, text, budget)
    assert text_of(made.mended.program) == text
    assert [one.cause for one in made.mended.suggestions] == [Cause.STOPS_ON_MPS]
    assert (made.note, made.alone) == (note, None)


def test_with_answers_for_cuda_nothing_is_tried_twice(tmp_path: Path) -> None:
    """There the script is on mps at once."""
    made = done(tmp_path, CHOOSES, cuda_as_mps=True)
    assert text_of(made.mended.program).count("fused=True") == 1
    assert (made.alone, made.note) == (None, "")


def test_what_is_told_of_the_changed_script_alone() -> None:
    """With the option that it ran with before, if there was one."""
    ran = Ran("", (0.5,), (), {}, used=True)
    told: Sequence[tuple[Tried | None, str]] = (
        (None, "no time was left to run the changed script without --cuda-as-mps (--runs allows more)"),
        (Tried(ran, ()), "the changed script runs on mps without --cuda-as-mps"),
        (Tried(ran, (), cut=True), "the first steps of the changed script run on mps without --cuda-as-mps"),
        (Tried(replace(ran, used=False), ()), "the changed script runs without --cuda-as-mps, but not on mps"),
        (Tried(replace(ran, error="E: no"), ()), "without --cuda-as-mps the changed script stops: E: no"),
        (
            Tried(replace(ran, error="E: no", trail=(("/p/train.py", 9),)), ()),
            "without --cuda-as-mps the changed script stops at train.py:9: E: no",
        ),
    )
    for tried, line in told:
        assert result_alone(tried, "--cuda-as-mps") == line
