"""What a changed script must keep where there is no Mac: losses, the device of its model, and its options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from anymps._settings import Settings
from anymps.commands.fix import _checks
from anymps.commands.fix._checks import Checks
from anymps.commands.fix._mend import Mender
from anymps.commands.fix._runs import Progress, Tried, _of_worker
from anymps.commands.fix._runs import Runs as RunsOfScript
from anymps.commands.isolated._proof_session import Order
from anymps.fix import Budget, Cause, Program, Ran

RAN, EMPTY = Ran("", (0.5, 0.25), (), {}), Ran("", (), (), {})
USED = replace(RAN, used=True)
CUDA = "AssertionError: Torch not compiled with CUDA enabled"


class Runs:
    """Runs nothing: `tries` are what it tells of a program and what was asked for, by the first word of its text."""

    order = Order("")

    def __init__(self, **tries: Tried) -> None:
        self.tries = tries
        self.asked: list[str] = []

    def try_out(self, program: Program, *, added: tuple[str, ...] = (), device: str = "mps", **_: object) -> Tried:
        what = added[0].strip("-") if added else device
        self.asked.append(what)
        return self.tries[f"{program.script(program.main.path).text.split()[0]}_{what}"]


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Program, Program]:
    (tmp_path / "train.py").write_text("before = 'cuda'\n")
    program = Program.read(tmp_path / "train.py")
    changed = program.main.with_text("after = 'mps'\n")
    assert changed is not None
    return program, program.having(changed)


def judged(programs: tuple[Program, Program], options: tuple[tuple[str, ...], ...] = (), **tries: Tried) -> list[str]:
    """Why the change is refused or, with `not seen`, not proved; or what is told of it."""
    checks = Checks(cast(Any, Runs(**tries)), Budget(), Progress(), options)
    found = checks(*programs)
    if found is None:
        return checks.notes
    return [found.why if found.cause is Cause.DIFFERS else f"{found.cause.value}: {found.why}"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (Tried(RAN, ("cpu",)), Tried(RAN, ("cpu",)), "the first 2 losses agree"),
        (Tried(RAN, ("cpu",)), Tried(replace(RAN, losses=(0.5, 0.3)), ("cpu",)), "losses differ: 0.3 instead of 0.25"),
        (
            Tried(RAN, ("cpu",)),
            Tried(replace(RAN, losses=(0.5,)), ("cpu",)),
            "1 losses instead of 2",
        ),
        (Tried(RAN, ("cpu",)), Tried(replace(RAN, losses=(0.5,)), ("cpu",), cut=True), "the loss agrees"),
        (
            Tried(RAN, ("cpu",)),
            Tried(replace(RAN, error="NameError: x"), ("cpu",)),
            "the script stops: NameError: x",
        ),
        (Tried(RAN, ("cpu",)), Tried(RAN, ("meta",)), "the model is on meta instead of cpu"),
        (
            Tried(replace(RAN, error=CUDA, losses=()), ()),
            Tried(RAN, ("cpu",)),
            f"the script stopped before ({CUDA}); it runs there now",
        ),
        (
            Tried(replace(RAN, error=CUDA, losses=()), ()),
            Tried(replace(RAN, error=CUDA, losses=()), ("cpu",)),
            f"the script stopped before ({CUDA}); it stops there too: {CUDA}",
        ),
        (
            Tried(replace(RAN, error="ValueError: 17"), ("cpu",)),
            Tried(replace(RAN, error="ValueError: 18"), ("cpu",)),
            "the first 2 losses agree",
        ),
    ],
)
def test_without_a_gpu(programs: tuple[Program, Program], before: Tried, after: Tried, told: str) -> None:
    """Where the script stopped there before, nothing can be compared; what it did before that can."""
    assert judged(programs, before_cpu=before, after_cpu=after) == [f"without a GPU {told}"]


CUT = Tried(EMPTY, (), cut=True, limit=12.0)
NO_TIME = "within 12 s (--runs allows more)"
NOT_CHECKED = f"not seen: with --no-cuda nothing was computed {NO_TIME}"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (Tried(RAN, ("cpu",)), CUT, "nothing was computed"),
        (CUT, Tried(RAN, ("mps",)), "nothing was computed"),
        (Tried(RAN, ("cpu",)), replace(CUT, places=("cpu",)), "no loss was computed"),
        (replace(CUT, places=("cpu",)), Tried(RAN, ("cpu",)), "no loss was computed"),
    ],
)
def test_what_was_not_seen_without_a_gpu_is_no_proof(
    programs: tuple[Program, Program], before: Tried, after: Tried, told: str
) -> None:
    """A run that was ended for its time before a loss tells nothing of one; with the time that it had."""
    assert judged(programs, before_cpu=before, after_cpu=after) == [f"not seen: without a GPU {told} {NO_TIME}"]


ON_CPU, ON_MPS, FAILED = Tried(RAN, ("cpu",)), Tried(RAN, ("mps",)), Tried(replace(RAN, error="ValueError: x"), ())


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (ON_CPU, ON_CPU, ["without a GPU the first 2 losses agree", "with --no-cuda the model is on cpu, as before"]),
        (ON_CPU, ON_MPS, ["with --no-cuda the model is on mps instead of cpu"]),
        (ON_CPU, FAILED, ["with --no-cuda the script stops: ValueError: x"]),
        (FAILED, ON_MPS, ["without a GPU the first 2 losses agree"]),
        (ON_CPU, CUT, [NOT_CHECKED]),
        (CUT, ON_MPS, [NOT_CHECKED]),
    ],
)
def test_with_an_option(programs: tuple[Program, Program], before: Tried, after: Tried, told: list[str]) -> None:
    """The model must be where it was; an option with which the script failed before tells nothing."""
    tries = {"before_cpu": ON_CPU, "after_cpu": ON_CPU, "before_no-cuda": before, "after_no-cuda": after}
    assert judged(programs, (("--no-cuda",),), **tries) == told


def test_options_are_tried_where_a_change_names_a_device(programs: tuple[Program, Program]) -> None:
    """And while there is time."""
    before, after = programs
    plain = before.main.with_text("after = 2\n")
    assert plain is not None
    unnamed = (before.having(cast(Any, before.main.with_text("before = 1\n"))), before.having(plain))
    assert judged(unnamed, (("--no-cuda",),), before_cpu=ON_CPU, after_cpu=ON_CPU) == [
        "without a GPU the first 2 losses agree"
    ]
    budget = Budget(spent=300.0, longest=10.0)
    options = (("--no-cuda",), ("--device", "cpu"))
    found = Checks(cast(Any, Runs(before_cpu=ON_CPU, after_cpu=ON_CPU)), budget, Progress(), options)(before, after)
    assert found is not None
    assert (found.cause, found.by_device) == (Cause.NOT_SEEN, True)
    assert found.why == (
        "it was not run with --no-cuda and --device cpu within the time of 3 runs (--runs allows more)"
    )


def test_the_script_as_it_stands_is_tried_once(programs: tuple[Program, Program]) -> None:
    """However many changes are compared with it."""
    runs = Runs(before_cpu=ON_CPU, after_cpu=ON_CPU)
    checks = Checks(cast(Any, runs), Budget(), Progress(), ())
    assert (checks(*programs), checks(*programs)) == (None, None)
    assert runs.asked == ["cpu", "cpu", "cpu"]


def test_a_run_that_is_cut_has_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the script makes of the interruption: here it ends with an exception of its own."""
    (tmp_path / "train.py").write_text(
        "import time\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    raise SystemExit('given up')\n"
    )
    monkeypatch.chdir(tmp_path)
    program = Program.read(Path("train.py"))
    tried = RunsOfScript(("train.py",), Order(""), 600).try_out(program, seconds=4)
    assert (tried.cut, tried.ran.error, tried.places) == (True, "", ())


@pytest.mark.parametrize(
    ("tried", "told"),
    [
        (Tried(USED, (), cut=True), Tried(USED, (), cut=True)),
        (Tried(USED, ()), Tried(USED, (), cut=True)),  # its first steps
        (Tried(replace(EMPTY, used=True), (), cut=True), None),
        (Tried(RAN, ()), Tried(RAN, (), cut=True)),
        (Tried(EMPTY, (), cut=True), None),
    ],
)
def test_a_run_without_answers_that_is_cut(
    programs: tuple[Program, Program], monkeypatch: pytest.MonkeyPatch, tried: Tried, told: Tried | None
) -> None:
    """Before a loss was computed that says nothing of the script's steps."""
    monkeypatch.setattr(RunsOfScript, "try_out", lambda *_, **__: tried)
    budget = Budget(spent=45.0, longest=15.0)
    mender = Mender(programs[0], RunsOfScript(("train.py",), Order(""), 600), budget)
    assert mender.alone(programs[1]) == told
    mender = Mender(programs[0], RunsOfScript(("train.py",), Order("", steps=3), 600), Budget(longest=15.0))
    assert mender.alone(programs[1]) == told


ON_CUDA = Tried(RAN, ("cuda",))
OTHER_LOSSES, STOPPED = replace(RAN, losses=(0.5, 0.3)), replace(RAN, error="ValueError: x")
ON_THE_GPU = "on this machine's CUDA GPU"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (ON_CUDA, ON_CUDA, ["without a GPU the first 2 losses agree", f"{ON_THE_GPU} the first 2 losses agree"]),
        (ON_CUDA, ON_CPU, [f"{ON_THE_GPU} the model is on cpu instead of cuda"]),
        (
            ON_CUDA,
            replace(ON_CUDA, ran=OTHER_LOSSES),
            [f"{ON_THE_GPU} losses differ: 0.3 instead of 0.25"],
        ),
        (
            ON_CUDA,
            replace(ON_CUDA, ran=STOPPED),
            [f"{ON_THE_GPU} the script stops: ValueError: x"],
        ),
        (
            FAILED,
            ON_CUDA,
            [
                "without a GPU the first 2 losses agree",
                f"{ON_THE_GPU} the script stopped before (ValueError: x); it runs there now",
            ],
        ),
    ],
)
def test_on_a_machine_with_cuda(
    programs: tuple[Program, Program], monkeypatch: pytest.MonkeyPatch, before: Tried, after: Tried, told: list[str]
) -> None:
    """A pair of runs more, with made-up results here: no test machine has such a GPU."""
    monkeypatch.setattr(_checks, "_has_cuda", lambda: True)
    tries = {"before_cpu": ON_CPU, "after_cpu": ON_CPU, "before_cuda": before, "after_cuda": after}
    assert judged(programs, **tries) == told


@pytest.mark.parametrize(
    ("build", "device", "found"),
    [("2.13.0+cu130", True, True), ("2.13.0", True, True), ("2.13.0+cpu", True, False), ("2.13.0+cu130", False, False)],
)
def test_whether_there_is_a_cuda_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str, device: bool, found: bool
) -> None:
    """The driver's file, and a torch that may use it."""
    file = tmp_path / "nvidiactl"
    if device:
        file.touch()
    monkeypatch.setattr(_checks, "_CUDA_DEVICE", str(file))
    monkeypatch.setattr(_checks, "version", lambda name: {"torch": build}[name])
    assert _checks._has_cuda() is found


def test_what_a_script_sees_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For CUDA its GPUs stay in sight and nothing answers for them; without a GPU they do not."""
    (tmp_path / "train.py").write_text(
        "import os, torch\nprint(int(torch.backends.mps.is_available()), int(torch.cuda.is_available()))\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES') or 9)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    program = Program.read(Path("train.py"))
    runs = RunsOfScript(("train.py",), Order("", Settings(cuda_as_mps=True)), 600)
    seen = {device: runs.try_out(program, device=device, cuda_as_mps=False).ran.printed for device in ("cuda", "cpu")}
    assert seen == {"cuda": (0.0, float(torch.cuda.is_available()), 3.0), "cpu": (0.0, 0.0, 9.0)}
    assert runs.try_out(program).ran.printed == (1.0, 1.0, 3.0)


OWN = 'Traceback (most recent call last):\n  File "train.py", line 9\nRuntimeError: it died\n'
OF_WORKER = 'Traceback (most recent call last):\n  File "train.py", line 3\n    f()\nKeyError: 1\n'
IGNORED = "Exception ignored in: <function Loader.__del__ at 0x7f>\n" + OF_WORKER
DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("errors", "traceback"),
    [
        ("", ""),
        (OWN, ""),
        (OWN + DIRECT + OWN, ""),
        (f"warning\n{OF_WORKER}more\n{OWN}", OF_WORKER.rstrip()),
        (f"{OF_WORKER}{OF_WORKER}{OWN}{DIRECT}{OWN}", OF_WORKER.rstrip()),
        (OWN + IGNORED, ""),
        (IGNORED + OWN, ""),
        (f"{IGNORED}{OF_WORKER}{OWN}{IGNORED}", OF_WORKER.rstrip()),
    ],
)
def test_the_traceback_of_a_worker_is_not_the_scripts(errors: str, traceback: str) -> None:
    """The script's own is the last, with what led to it; an exception that Python ignored ended no process."""
    assert _of_worker(errors) == traceback
