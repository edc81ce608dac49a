"""`anymps bench` in this process: what it times, what it prints, and mistakes in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import torch

from anymps.commands import main
from anymps.commands.bench._session import more_runs, no_step_left, too_few_steps

CODE = """\
import torch

def plain():
    print("noise")
    return torch.ones(2)

def make(device):
    x = torch.ones(2, device=device)
    def step():
        return x + x
    return step

def needs(size, device):
    pass

def fails():
    raise RuntimeError("of the user")

number = 3
"""
SHORT = ("--repeat", "8", "--min-time", "0")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with functions, which the process stands in; the import path is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.delitem(sys.modules, "functions", raising=False)
    tmp_path.joinpath("functions.py").write_text(CODE)
    yield tmp_path
    sys.modules.pop("functions", None)


def test_function_on_the_cpu(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table on stdout; what the function prints goes to stderr."""
    assert main(["bench", "--device", "cpu", *SHORT, "functions:plain"]) == 0
    captured = capsys.readouterr()
    head, row, *_ = captured.out.splitlines()
    columns = ["device", "median", "IQR", "min", "max", "queued", "first", "runs"]
    assert head.split() == columns
    assert row.split()[:2] == ["plain", "cpu"] and row.split()[-1] == "8"
    assert captured.err == "noise\n" * 11  # the first, which tells that it prepares nothing; 2 to warm up; 8


def test_too_few_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number to ask for has the option's name; a script that ended before it had made them is to make more."""
    assert main(["bench", "--device", "cpu", *SHORT, "--repeat", "5", "functions.py:plain"]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if "too few" in line]
    assert warnings == ["warning: 5 runs are too few for a median: pass --repeat 8"]
    assert more_runs(5, 8) == "let the script make more steps"


def follows_the_schema(document: object) -> None:
    """A document is what `docs/schema/bench-1.json` says, and that says all that is in it."""
    schema = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "bench-1.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    # A field that the schema does not know is an error here, though not to a reader.
    closed = {**schema, "unevaluatedProperties": False}
    closed["$defs"] = {
        name: {**definition, "unevaluatedProperties": False} for name, definition in schema["$defs"].items()
    }
    jsonschema.validate(document, closed)


def test_two_devices_in_turns(virtual_device: torch.device, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the function returned is timed on each device, and the virtual one is said to be no Mac."""
    assert main(["bench", "--device", "cpu,mps", *SHORT, "--json", "functions.py:make"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = [(row["name"], row["device"], row["virtual"], row["runs"]) for row in document["timings"]]
    assert rows == [("make on cpu", "cpu", False, 8), ("make on mps", "mps", True, 8)]
    assert [(ratio["name"], ratio["base"]) for ratio in document["ratios"]] == [("make on mps", "make on cpu")]
    warning = "virtual device: these are this machine's times, not a Mac's"
    assert document["timings"][1]["warnings"][0] == warning
    (predicted,) = document["predictions"]
    assert (predicted["name"], predicted["measured_ns"], predicted["held"]) == ("make on mps", None, None)
    assert predicted["text"].startswith("make on mps would take about ")
    follows_the_schema(document)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name module:function or a script (anymps bench --help)"),
        (["nowhere:f"], "there is no module named 'nowhere'"),
        (["nowhere.py:f"], "there is no script nowhere.py"),
        (["-m", "nowhere"], "there is no module named 'nowhere'"),
        (["nowhere.py"], "there is no script nowhere.py"),
        (["functions:f"], "functions has no function f"),
        (["functions:number"], "functions:number is not a function"),
        (["functions.py:needs"], "functions.py:needs needs size: only a parameter 'device' is passed to it"),
        (["functions:plain", "x"], "functions:plain takes no arguments from the command line: x"),
        (["--device", "cpu", "train.py"], "--device is for functions: a script chooses its device itself"),
        (["--device", "cpu,cpu", "functions:plain"], "--device cpu,cpu names a device twice"),
        (
            ["--device", "cpu", "--mac", "M1 8GB", "functions:plain"],
            "--mac is for the device mps, which --device does not name",
        ),
        (
            ["--device", "cpu,meta", "functions:plain"],
            "functions:plain has no parameter 'device', so it cannot be put on cpu and meta: give it one, or name one "
            "device",
        ),
    ],
)
def test_mistakes(home: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """A mistake of the user's is one line and exit code 2."""
    device = [] if "--device" in words or not words else ["--device", "cpu"] * (":" in words[0])
    assert main(["bench", *device, *words]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"anymps: {message}\n")


def test_unknown_device(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device that torch does not know, in torch's words after ours."""
    assert main(["bench", "--device", "gpu", "functions:plain"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("anymps: there is no device 'gpu' here: Expected one of cpu, ")
    assert error.count("\n") == 1


def test_fault_of_the_function(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An exception of the user's code is shown from the user's first line on, with exit code 1 and no table."""
    assert main(["bench", "--device", "cpu", "functions:fails"]) == 1
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[:2] == [
        "Traceback (most recent call last):",
        f'  File "{home / "functions.py"}", line 17, in fails',
    ]
    assert (lines[-1], captured.out) == ("RuntimeError: of the user", "")


FUNCTION = "time one of its functions, such as `anymps bench train.py:train_step`"


@pytest.mark.parametrize(
    ("made", "warmup", "why"),
    [
        (0, 3, f"train.py made no optimizer step, and a step is timed from one to the next: {FUNCTION}"),
        (1, 3, f"train.py made 1 optimizer step, and the first 3 do not count: let it make more, or {FUNCTION}"),
        (1, 1, f"train.py made 1 optimizer step, and the first does not count: let it make more, or {FUNCTION}"),
        (
            3,
            3,
            "train.py made 3 optimizer steps, and the first 3 do not count: let it make more, count from the second "
            f"one on with --warmup 1, or {FUNCTION}",
        ),
    ],
)
def test_too_few_steps_say_what_to_do(made: int, warmup: int, why: str) -> None:
    """How many there were, and how to time more of them, or something else."""
    assert too_few_steps("train.py", made, warmup) == why


@pytest.mark.parametrize(
    ("made", "advice"),
    [(0, "let it make more steps"), (13, "let it make more steps"), (14, "time fewer steps, such as --repeat 8")],
)
def test_no_step_is_left_says_what_to_do(made: int, advice: str) -> None:
    """Fewer are to be timed only where enough for a median remain, and then a number that leaves some."""
    assert no_step_left(made) == (f"the script ended, or called no module, before a step could be recorded: {advice}")
