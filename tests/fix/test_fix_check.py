"""What is kept of the edits, by the runs of the changed script: with made-up runs here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anymps.findings import RULES
from anymps.findings.edits import Safety
from anymps.fix import Checked, Edit, How, Program, Ran, check, edits_for
from anymps.record import Site
from anymps.source import rows

TEXT = """import torch
device = torch.device("cuda")
loader = DataLoader(x, pin_memory=True)
o = Adam(p)
"""
RULES_AT = (("MPS409", 2), ("MPS108", 3), ("MPS812", 4))
ON_CPU = Ran("", (0.5, 0.25), (0.25,), {"log.csv": "0.25\n"}, seconds=100.0)
ON_MPS = replace(ON_CPU, used=True)
NO_CUDA = Ran("AssertionError: Torch not compiled with CUDA enabled", seconds=1.0)
ALL, NO_FUSED, SURE = "device sure fused", "device sure", "sure"


class Runs:
    """Each run with its edits by name, and what it is for; `answers` makes up what it does."""

    def __init__(self, program: Program, answer: Callable[[str, How], Ran]) -> None:
        self.told: list[str] = []
        self.took = 0.0
        self._program = program
        self._answer = answer

    def __call__(self, orders: Sequence[tuple[Program, How]]) -> list[Ran]:
        found = [self._one(*order) for order in orders]
        self.took += max(ran.seconds for ran in found)
        return found

    def _one(self, program: Program, how: How) -> Ran:
        text = program.script(program.main.path).text
        marks = {"device": '"mps"', "sure": "True, x=1", "fused": "fused"}
        edits = " ".join(name for name, mark in marks.items() if mark in text)
        self.told.append(f"{how.what}: {edits}".removesuffix(": "))
        ran = self._answer(edits, how)
        lines = [number for number, line in enumerate(text.splitlines(), 1) if any(m in line for m in marks.values())]
        return ran if ran.reached else replace(ran, reached=frozenset((str(program.main.path), at) for at in lines))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "train.py").write_text(TEXT)
    return Program.read(tmp_path / "train.py")


def edits_of(program: Program) -> list[Edit]:
    """One that chooses the device, one that means the same everywhere, and one that two runs have to show."""
    from anymps.source import CallEdit

    sure = CallEdit(("DataLoader",), set=(("x", "1"),))
    found = [
        RULES[rule].finding(
            Site(str(program.main.path), line, "", rows(program.main.text)[line - 1]), what="It.", count=1,
            edit=sure if rule == "MPS108" else None, safety=Safety.SAFE if rule == "MPS108" else None,
        )
        for rule, line in RULES_AT
    ]  # fmt: skip
    return edits_for(found, program)[0]


def checked(program: Program, before: Ran, runs: Runs, answered: bool = False, option: str = "") -> Checked:
    return check(program, edits_of(program), before, runs, answered=answered, option=tuple(option.split()))


def kept(done: Checked) -> list[str]:
    return sorted(edit.finding.id for edit in done.kept)


def left(done: Checked) -> list[tuple[str, str]]:
    return sorted((one.finding.id, one.why) for one in done.left)


def test_three_runs_that_agree(program: Program) -> None:
    """The patch goes in whole. mps draws the numbers of the CPU, as that is where the unchanged script ran."""
    draws = []

    def answer(edits: str, how: How) -> Ran:
        draws.append((how.device, how.answered, how.draws_on_cpu, how.steps))
        return ON_MPS if how.device == "mps" else replace(ON_CPU, early=5)

    runs = Runs(program, answer)
    done = checked(program, ON_CPU, runs)
    assert runs.told == [f"the first steps without a GPU: {ALL}", f"the changed script on mps: {ALL}"]
    assert draws == [("cpu", False, False, 5), ("mps", False, True, None)]
    assert (kept(done), left(done)) == (["MPS108", "MPS409", "MPS812"], [])
    assert done.notes == [
        "without a GPU, 2 losses agree",
        "on mps, 2 losses, 1 printed number and 1 file agree",
    ]


def test_what_two_runs_have_to_show_goes_first(program: Program) -> None:
    """Losses differ where there is no GPU: what means the same everywhere is looked at without the rest."""

    def answer(edits: str, how: How) -> Ran:
        ran = ON_MPS if how.device == "mps" else ON_CPU
        return replace(ran, losses=(0.5, 0.3)) if "fused" in edits else ran

    runs = Runs(program, answer)
    done = checked(program, ON_CPU, runs)
    assert runs.told == [
        f"the first steps without a GPU: {ALL}",
        f"the first steps without a GPU: {NO_FUSED}",
        f"the changed script on mps: {NO_FUSED}",
    ]
    assert kept(done) == ["MPS108", "MPS409"]
    assert left(done) == [("MPS812", "without a GPU losses differ: 0.3 instead of 0.25")]


def test_a_choice_of_mps_that_stops_a_mac(program: Program) -> None:
    """A Mac ran it on its CPU: `torch.cuda.FloatTensor if cuda else torch.FloatTensor` raises once mps is chosen."""
    stop = replace(ON_MPS, error="TypeError: type torch.cuda.FloatTensor not available", trail=(("train.py", 9),))

    def answer(edits: str, how: How) -> Ran:
        return ON_CPU if not edits or how.device == "cpu" else stop

    runs = Runs(program, answer)
    done = checked(program, ON_MPS, runs, answered=True)
    assert runs.told == [
        f"the first steps without a GPU: {ALL}",
        "the unchanged script without --cuda-as-mps",
        f"the changed script on mps: {ALL}",
    ]
    why = "on mps the script stops at train.py:9: TypeError: type torch.cuda.FloatTensor not available"
    assert (kept(done), left(done)) == (["MPS108"], [("MPS409", why), ("MPS812", why)])
    assert done.after is None


def test_a_script_that_no_mac_runs_gets_further(program: Program) -> None:
    """It stops at CUDA as it stands. Its losses are those with mps in place of CUDA, with the same random numbers."""

    def answer(edits: str, how: How) -> Ran:
        if not edits:
            return NO_CUDA
        assert not how.draws_on_cpu
        return ON_MPS if how.device == "mps" else ON_CPU

    done = checked(program, ON_MPS, Runs(program, answer), answered=True)
    assert (len(done.kept), done.unchanged.error, done.notes[-1]) == (
        3,
        NO_CUDA.error,
        "on mps, 2 losses, 1 printed number and 1 file agree",
    )
    other = Runs(program, lambda edits, how: replace(answer(edits, how), losses=(0.5, 0.9) if edits else ()))
    done = checked(program, ON_MPS, other, answered=True)
    assert ("MPS409", "on mps losses differ: 0.9 instead of 0.25") in left(done)


def test_losses_are_those_of_a_mac_not_of_the_answers(program: Program) -> None:
    """With mps in place of CUDA the script does something else than a Mac does; the change makes a Mac do it, too."""
    answers = replace(ON_MPS, losses=(7.0, 7.0))

    def answer(edits: str, how: How) -> Ran:
        return answers if edits and how.device == "mps" else ON_CPU

    done = checked(program, answers, Runs(program, answer), answered=True)
    assert kept(done) == ["MPS108"]
    assert dict(left(done))["MPS409"] == "on mps losses differ: 7 instead of 0.5"


@pytest.mark.parametrize(
    ("above", "kept_lines"),
    [
        ("def evaluate():", [3, 6]),
        ("if use:", [3, 6]),
        ("if torch.cuda.is_available():", [3, 5, 6]),  # entered on a Mac from now on
        ("if torch.cuda.is_available() and torch.cuda.is_bf16_supported():", [3]),
    ],
)
def test_a_line_that_the_run_does_not_reach(tmp_path: Path, above: str, kept_lines: list[int]) -> None:
    """It is changed, as a value that is changed may decide there, and told; not where no Mac comes."""
    text = f'import torch\n\nuse = torch.cuda.is_available()\n\n{above}\n    model.to("cuda" if use else "cpu")\n'
    (tmp_path / "train.py").write_text(text)
    program = Program.read(tmp_path / "train.py")
    line = Site(str(program.main.path), 3, "", rows(program.main.text)[2])
    found = RULES["MPS409"].finding(line, what="It.", count=1)

    def run(orders: Sequence[tuple[Program, How]]) -> list[Ran]:
        reached = frozenset({(str(program.main.path), 3), (str(program.main.path), 5)})
        return [replace(ON_MPS if how.device == "mps" else ON_CPU, reached=reached) for _, how in orders]

    done = check(program, edits_for([found], program)[0], ON_CPU, run)
    assert sorted(edit.line for edit in done.kept) == kept_lines
    told = 6 in kept_lines
    assert ("the run on mps did not reach line 6 of train.py" in done.notes) is told
    why = [(6, "the run on mps did not reach its line")]
    assert [(one.finding.site.line, one.why) for one in done.left] == ([] if told else why)


def test_what_the_script_prints_of_a_gpu(program: Program) -> None:
    """`if use_cuda: print(torch.cuda.device_count())`: a Mac did not come there, and the run with answers did."""
    more = replace(ON_MPS, printed=(1.0, 0.25))

    def answer(edits: str, how: How) -> Ran:
        return more if edits and how.device == "mps" else ON_CPU

    done = checked(program, more, Runs(program, answer), answered=True)
    assert (len(done.kept), done.notes[1]) == (3, "on mps, 2 losses, 1 printed number and 1 file agree")
    done = checked(program, replace(more, printed=(1.0, 2.0, 0.25)), Runs(program, answer), answered=True)
    assert left(done)[0][1] == "on mps 2 printed numbers instead of 1"


def test_a_script_for_mps_is_compared_without_a_gpu_with_itself(program: Program) -> None:
    """Its random numbers are others there: one more short run shows what it does without the changes."""

    def answer(edits: str, how: How) -> Ran:
        return ON_MPS if how.device == "mps" else replace(ON_CPU, losses=(0.6, 0.7), early=5)

    runs = Runs(program, answer)
    done = checked(program, ON_MPS, runs)
    assert runs.told[1] == "the same of the unchanged script"
    assert (len(done.kept), done.notes[0]) == (3, "without a GPU, 2 losses, 1 printed number and 1 file agree")


def test_a_model_that_leaves_mps(program: Program) -> None:
    """`if args.device == "cuda": model.cuda()` after a change of the default: the losses agree on the CPU, too."""
    runs = Runs(program, lambda edits, how: ON_CPU)
    done = checked(program, ON_MPS, runs)
    assert dict(left(done))["MPS409"] == "on mps nothing is on mps any more"


@pytest.mark.parametrize(
    ("after", "told", "count"),
    [
        (ON_CPU, "with --no-cuda, the script stays on the CPU", 3),
        (ON_MPS, "", 2),
        (replace(ON_CPU, error="E: x"), "with --no-cuda, the changed script stops E: x", 3),
    ],
)
def test_an_option_that_asks_for_the_cpu(program: Program, after: Ran, told: str, count: int) -> None:
    """One step with it, where the device is chosen otherwise."""

    def answer(edits: str, how: How) -> Ran:
        ran = (after if edits else ON_CPU) if how.added else ON_MPS if how.device == "mps" else ON_CPU
        return replace(ran, seconds=1.0)

    done = checked(program, replace(ON_CPU, seconds=1.0), Runs(program, answer), option="--no-cuda")
    assert (len(done.kept), done.notes[2:]) == (count, [told] if told else [])
    if count == 2:
        assert (left(done), done.notes) == ([("MPS409", "with --no-cuda it still uses mps")], [])


@pytest.mark.parametrize("place", ["CUDA", "mps"])
def test_an_option_that_never_asked_for_the_cpu(program: Program, place: str) -> None:
    """`--gpu -1` of a script that gives the number to CUDA_VISIBLE_DEVICES: the unchanged script does not obey it."""
    at = replace(NO_CUDA, trail=((str(program.main.path), 2),)) if place == "CUDA" else ON_MPS

    def answer(edits: str, how: How) -> Ran:
        mps = how.device == "mps" and (edits or how.answered)
        ran = at if how.added and how.answered else ON_MPS if mps else ON_CPU  # which every Mac would use by itself
        return replace(ran, seconds=1.0)

    runs = Runs(program, answer)
    done = checked(program, replace(ON_CPU, seconds=1.0), runs, answered=True, option="--gpu -1")
    assert (len(done.kept), left(done), len(done.notes)) == (3, [], 2)
    assert runs.told[-1] == "the unchanged script with --gpu -1"


def test_no_more_time_than_three_runs_and_a_fifth(program: Program) -> None:
    """A difference that shows at the end leaves no time for another run: what needs none is kept."""

    def answer(edits: str, how: How) -> Ran:
        ran = ON_MPS if how.device == "mps" else ON_CPU
        return replace(
            ran, seconds=min(how.seconds, 100.0), losses=(0.5, 0.3) if edits and how.device == "mps" else (0.5, 0.25)
        )

    for answered in (False, True):
        runs = Runs(program, answer)
        assert kept(checked(program, ON_CPU, runs, answered=answered, option="--cpu")) == ["MPS108"]
        assert ON_CPU.seconds + runs.took <= 320.0


def test_a_run_that_was_cut_before_its_first_loss(program: Program) -> None:
    """It shows nothing."""
    runs = Runs(program, lambda edits, how: Ran(cut=True, seconds=60.0))
    assert dict(left(checked(program, ON_CPU, runs)))["MPS409"].endswith("no loss was computed in time")
