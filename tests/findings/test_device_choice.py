"""A run in which nothing reached mps: the line that chose the device is found in the source, with what to write."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from anymps._settings import Settings
from anymps.capture import _device_choice
from anymps.capture._device_choice import device_choice, note_device_types
from anymps.commands import main
from anymps.commands._judge import FINDINGS, UNUSED, Judge
from anymps.findings import Finding, Severity, Story, find
from anymps.record import Fate, RecordingBuilder
from anymps.report import render_summary, render_terminal, report_pieces
from anymps.report._words import verdict
from recordings import META

CHOICE = '"cuda" if torch.cuda.is_available() else "cpu"'
BETTER = '"mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() else "cpu"'


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is the whole program; the modules of the tests are no part of it."""
    monkeypatch.setattr(_device_choice, "sys", SimpleNamespace(modules={}))


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (f"device = {CHOICE}", 1),
        (f"import torch\n\ndef main():\n    device = torch.device({CHOICE})", 4),
        ('d = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")', 1),
        (f'device = torch.device("cpu")\nuse = {CHOICE}', 2),
        ("x = 1\nif torch.cuda.is_available():\n    model.cuda()", 2),
        ("import torch\nargs.cuda = not args.no_cuda and torch.cuda.is_available()\nif args.cuda:\n    m.cuda()", 2),
        ('x = 1\nmodel.to(torch.device("cuda:1"))', 2),
        ('import torch\nDEVICE = "cpu"', 2),
        ('import torch\nparser.add_argument("--device", default="cpu")', 2),
        ('import torch\nx = torch.ones(3, device="cpu")', 2),
        ("n = 4 if torch.cuda.is_available() else 8", 1),
    ],
)
def test_the_line_that_chose(tmp_path: Path, lines: str, line: int) -> None:
    """The choice by CUDA comes first, then a device by name."""
    script = tmp_path / "train.py"
    script.write_text(lines + "\n")
    chosen = {"file": str(script), "line": line, "source": lines.splitlines()[line - 1].strip(), "chosen": True}
    assert device_choice(str(script)) == {**chosen, "first": 1, "around": lines}


def test_a_script_that_names_no_device(tmp_path: Path) -> None:
    """Then the line that imports torch stands for it; what cannot be read is left alone."""
    script = tmp_path / "train.py"
    script.write_text("import os\nfrom torch import nn\nmodel = nn.Linear(2, 2)\n")
    choice = device_choice(str(script))
    assert (choice["line"], choice["chosen"]) == (2, False)
    broken = tmp_path / "broken.py"
    broken.write_text("x = = 1\n")
    assert device_choice(str(broken)) == {}


def test_the_best_choice_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later module's better choice counts; of equal ones the first. Files without the words of one are not parsed."""
    texts = {
        "train": "import torch\n",
        "plain": "x = 1\n",
        "named": 'import torch\nx = torch.ones(3, device="cpu")\n',
        "again": 'y = 2\n\nz = torch.zeros(3, device="cpu")\n',
        "asked": f"import torch\n\ndevice = {CHOICE}\n",
        "last": f"device = {CHOICE}\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    parsed = []
    _device_choice._choices.cache_clear()

    def parse(source: str) -> ast.Module:
        parsed.append(source)
        return ast.parse(source)

    monkeypatch.setattr(_device_choice, "parsed", parse)
    for names, best in ((("named", "again"), ("named", 2)), (("plain", "named", "asked", "last"), ("asked", 3))):
        modules = {name: SimpleNamespace(__file__=str(tmp_path / f"{name}.py")) for name in names}
        monkeypatch.setattr(_device_choice, "sys", SimpleNamespace(modules=modules))
        choice = device_choice(str(tmp_path / "train.py"))
        assert (Path(str(choice["file"])).stem, choice["line"]) == best
    assert sorted(parsed) == sorted(texts[name] for name in ("train", "named", "again", "asked"))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            't = "cuda" if "cuda" in device else "cpu"\nctx = null() if t == "cpu" else torch.amp.autocast(t)',
            (1, 2, "t"),
        ),
        (
            'def f(d):\n    t = "cuda" if d.startswith("cuda") else "cpu"\n    with torch.autocast(t):\n        y = x',
            (2, 3, "t"),
        ),
        (
            'if "cuda" in str(d):\n    t = "cuda"\nelse:\n    t = "cpu"\ns = GradScaler(enabled=t == "cuda")',
            (1, 5, "t"),
        ),
        ('t = "cuda" if "cuda" in device else "cpu"\nprint(t, torch.autocast)', None),  # hands it to no call
        ('t = "cuda" if torch.cuda.is_available() else "cpu"\nwith torch.autocast(t):\n    y = x', None),
        ('t = "mps" if "mps" in d else "cuda" if "cuda" in d else "cpu"\nautocast(t)', None),
        ('t = "cpu" if "cuda" not in device else "cuda"\nautocast(t)', None),
    ],
)
def test_what_takes_mps_for_the_cpu(tmp_path: Path, lines: str, told: tuple[int, int, str] | None) -> None:
    """With the first line that hands the name to autocast or a scaler."""
    script = tmp_path / "train.py"
    script.write_text(lines + "\n")
    notes: list[tuple[object, ...]] = []
    core = SimpleNamespace(
        site=lambda file, line, function, via: (line, function), note_pair=lambda *note: notes.append(note)
    )
    note_device_types(core, str(script))
    if told is None:
        assert notes == []
        return
    call = "GradScaler" if "GradScaler" in lines else "autocast"
    function = "f" if "def f" in lines else "<module>"
    mark = f'anymps::device_type {{"call": "{call}", "name": "{told[2]}"}}'
    assert notes == [(mark, (told[0], function), (told[1], function))]


@pytest.mark.parametrize(("value", "count"), [("cpu", 1), ("cuda", 0)])
def test_the_value_that_a_type_has_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, count: int
) -> None:
    """A module whose name holds another device took none for the CPU."""
    script = tmp_path / "train.py"
    script.write_text('t = "cuda" if "cuda" in device else "cpu"\nautocast(t)\n')
    module = SimpleNamespace(__file__=str(script), t=value)
    monkeypatch.setattr(_device_choice, "sys", SimpleNamespace(modules={"__main__": module}))
    notes: list[object] = []
    core = SimpleNamespace(site=lambda *_: 1, note_pair=lambda *note: notes.append(note))
    note_device_types(core, str(script))
    assert len(notes) == count


def unused(**choice: object) -> Finding:
    """The finding about a run without mps."""
    (finding,) = find(RecordingBuilder(meta={**META, "device_choice": choice}).close())
    return finding


def test_nothing_ran_on_mps_is_an_error() -> None:
    """With the line and what to write there; the verdict says it, too."""
    finding = unused(file="/home/me/project/train.py", line=3, source=f"d = {CHOICE}", chosen=True)
    assert (finding.id, finding.severity, finding.site.line) == ("MPS002", Severity.ERROR, 3)
    assert finding.what == "No tensor reached mps. This line chooses the device, and it did not choose mps."
    assert finding.fix == f"Let the line choose mps too: `d = {BETTER}`. Other machines behave as before."
    recording = RecordingBuilder(meta=META).close()
    assert verdict(Story.of(recording), [finding]) == [
        "Nothing ran on mps, so this says nothing about M3 Pro 18GB.",
        "1 error. Change first: train.py:3 (MPS002).",
    ]


def test_a_choice_of_cuda_that_is_no_device() -> None:
    """A truth value that `.cuda()` hangs on: the calls have to change too."""
    finding = unused(
        file="/p/gan.py", line=39, source="cuda = True if torch.cuda.is_available() else False", chosen=True
    )
    assert finding.fix == (
        'Prefer mps where the device is chosen: `device = "mps" if torch.backends.mps.is_available() else "cpu"`. Then '
        "write "
        "`.to(device)` for `.cuda()`, and `device=device` where a tensor is made."
    )


OVER_LINES = [
    ("device = torch.device(\n    f'cuda:{gpu}' if torch.cuda.is_available() else 'cpu'\n)",
     "device = torch.device('mps' if torch.backends.mps.is_available() else f'cuda:{gpu}' if "
     "torch.cuda.is_available() else 'cpu')"),
    ('device = torch.device("cuda:" + str(gpu)\n                      if torch.cuda.is_available() else "cpu")',
     'device = torch.device("mps" if torch.backends.mps.is_available() else "cuda:" + str(gpu) if '
     'torch.cuda.is_available() else "cpu")'),
    ('device = (\n    "cuda:1"\n    if torch.cuda.is_available()\n    else "cpu"\n)',
     'device = ("mps" if torch.backends.mps.is_available() else "cuda:1" if torch.cuda.is_available() else "cpu")'),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "new"), OVER_LINES)
def test_a_choice_over_several_lines(tmp_path: Path, lines: str, new: str) -> None:
    """The recording has the whole statement, and the new code keeps the index of the GPU."""
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n\ngpu = 1\n{lines}\nx = torch.ones(3, device=device)\n")
    finding = unused(**device_choice(str(script)))
    assert finding.fix == f"Let the line choose mps too: `{new}`. Other machines behave as before."


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        ("if torch.cuda.is_available():",
         "Put a branch for mps before this one: `if torch.backends.mps.is_available():`. In it, do with mps what this "
         "one does with CUDA. This one then begins with `elif`, so other machines behave as before."),
        ('"cuda:1"',
         'Prefer mps where the device is chosen: put `"mps" if torch.backends.mps.is_available() else` before it. '
         "Other machines behave as before."),
    ],
)  # fmt: skip
def test_a_choice_that_stays_in_words(source: str, fix: str) -> None:
    """No code can be built of a branch, or of a line without its statement; CUDA is kept all the same."""
    assert unused(file="/p/gan.py", line=39, source=source, chosen=True).fix == fix


def test_steps_of_which_nothing_ran_on_mps_have_no_table() -> None:
    """A loop was found, but there is nothing to show of it, in no form of the report."""
    builder = RecordingBuilder(meta={**META, "device_choice": {}})
    for step in range(4):
        builder.entry("aten::to", start_ns=step * 1000, fate=Fate.MARK)
        builder.end_step((step + 1) * 1000)
    recording = builder.close()
    findings = list(find(recording))
    assert "phase" not in render_terminal(Story.of(recording), findings, width=100)
    assert "step-table" not in "".join(report_pieces("html", Story.of(recording), findings))
    assert "A step" not in render_summary(Story.of(recording), findings, whole="anymps report")


def test_nothing_ran_and_nothing_chose() -> None:
    """Without a line that chooses, the advice is general."""
    finding = unused()
    assert not finding.site.known
    assert finding.what == "The script never named a device, so everything stayed on the CPU."
    assert finding.fix == (
        'Prefer mps where the device is chosen: `device = "mps" if torch.backends.mps.is_available() else "cpu"`. Then '
        "move the model and each batch, `.to(device)`, and create other tensors with `device=device`."
    )


def test_the_gate_is_red(tmp_path: Path) -> None:
    """`--fail-on error` ends with 3."""
    recording = RecordingBuilder(meta={**META, "device_choice": {}}).close()
    judge = Judge(tmp_path, Settings(fail_on="error"))
    assert judge.conclude(recording, judge.judge(recording)) == FINDINGS


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize(
    ("script", "options", "status"),
    [
        ("import torch\ntorch.ones(3)\n", [], UNUSED),
        ("import torch\ntorch.ones(3)\n", ["--no-report"], UNUSED),
        ("import torch\ntorch.ones(3)\n", ["--fail-on", "error"], FINDINGS),
        ("import torch\ntorch.ones(3)\n", ["--allow-unused"], 0),
        ("import torch\ntorch.ones(3)\n", ["--allow-unused", "--fail-on", "info"], 0),
        ("import torch  # anymps: ignore[MPS002] a tool\ntorch.ones(3)\n", [], 0),
        ("import torch\ntorch.ones(3, device='mps')\n", [], 0),
        ("raise SystemExit(7)\n", [], 7),
        ("import torch\ntorch.ones(3) @ torch.ones(4)\n", [], 1),
    ],
)
def test_the_exit_code_tells_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    script: str,
    options: list[str],
    status: int,
) -> None:
    """A run without mps ends with 4, or 3 with `--fail-on`, unless it is meant; a script's own code stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(script)
    assert main(["run", "--record", "run.anymps", *options, "train.py"]) == status
    line = "anymps: exit code 4: nothing ran on mps. If that is intended, pass --allow-unused\n"
    assert (line in capfd.readouterr().err) is (status == UNUSED)
