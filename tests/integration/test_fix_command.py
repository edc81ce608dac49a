"""`anymps fix` on real scripts: the patch, the checks, what it writes and what it leaves alone."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from processes import Result, run_command

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRAIN = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(3)
device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(30)], nn.Linear(16, 4)).to(device)
weight = torch.from_numpy(np.linspace(0.5, 1.0, 4)).to(device)  # per class
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
total = 0.0
for step in range(6):
    x = torch.randn(8, 16, device=device)
    loss = nn.functional.cross_entropy(model(x), torch.arange(8, device=device) % 4, weight=weight)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
print(f"mean loss {total / 6:.4f}")
torch.save(model.state_dict(), "model.pt")
""".lstrip()

CUDA = """
import torch

model = torch.nn.Linear(4, 2).cuda()
x = torch.ones(3, 4).cuda()
print(model(x).shape, torch.cuda.is_available())
""".lstrip()


WORKERS = """
import torch

loader = torch.utils.data.DataLoader(torch.arange(12.0), batch_size=4, num_workers=1)


def train():
    for x in loader:
        print(x.to("mps").sum().item())


train()
print("done")
""".lstrip()


OPTIONS = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
model = torch.nn.Linear(16, 4).to(device)
print(model(torch.ones(2, 16).to(device)).shape)
""".lstrip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder under version control, with the two scripts as HEAD has them."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "port.py").write_text(CUDA)
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def fix(folder: Path, *words: str) -> Result:
    return run_command("-m", "anymps", "fix", "--mac", "M2 16GB", *words, cwd=folder)


def runs_of(result: Result) -> list[str]:
    """What each run was for."""
    return [line.partition(": run ")[2] for line in result.err.splitlines() if line.startswith("anymps: run ")]


def changed_lines(result: Result) -> list[str]:
    return [line for line in result.out.splitlines() if line.startswith(("-", "+"))]


def test_what_agrees_is_a_patch(folder: Path) -> None:
    """Three runs. Nothing is written, also by the script; a number that is kept stays one, and is a suggestion."""
    text = TRAIN.replace("np.linspace(0.5, 1.0, 4)", "np.linspace(0.5, 1.0, 4, dtype=np.float32)")
    (folder / "train.py").write_text(text)
    result = fix(folder, "train.py")
    assert result.status == 0, result.err
    assert changed_lines(result)[2:] == [
        "-optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
        "+optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)",
    ]
    lines = result.err.splitlines()
    assert "anymps: 1 change: MPS812 in line 9" in lines
    assert "  on mps, 6 losses, 1 printed number and 1 file agree" in lines
    assert "  MPS201  train.py:17  not changed: no safe edit of this line is known" in lines
    assert (folder / "train.py").read_text() == text
    assert not (folder / "model.pt").exists()
    applied = subprocess.run(["git", "apply", "--check"], input=result.out, cwd=folder, text=True, check=False)
    assert applied.returncode == 0


def test_a_script_that_stops_gets_further(folder: Path) -> None:
    """An error hides what comes after it: that is for the next time."""
    result = fix(folder, "train.py")
    assert result.status == 0, result.err
    assert changed_lines(result)[2:] == [
        "-weight = torch.from_numpy(np.linspace(0.5, 1.0, 4)).to(device)  # per class",
        "+weight = torch.from_numpy(np.linspace(0.5, 1.0, 4, dtype=np.float32)).to(device)  # per class",
    ]
    lines = result.err.splitlines()
    assert "anymps: 1 change: MPS301 in line 8" in lines
    before = "  before, the script stops at train.py:8: TypeError: Cannot convert a MPS Tensor to float64"
    assert any(line.startswith(before) for line in lines)
    assert "  the changed script runs on mps" in lines


def test_a_script_for_cuda_is_written(folder: Path) -> None:
    """With --write over a file that git has; a second time it differs from HEAD."""
    result = fix(folder, "--cuda-as-mps", "--write", "port.py")
    assert result.status == 0, result.err
    device = '"mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() else "cpu"'
    assert (folder / "port.py").read_text() == textwrap.dedent(f"""
        import torch

        device = torch.device({device})

        model = torch.nn.Linear(4, 2).to(device)
        x = torch.ones(3, 4).to(device)
        print(model(x).shape, torch.backends.mps.is_available() or torch.cuda.is_available())
    """).lstrip()
    assert result.err.splitlines()[-1] == "anymps: port.py is written"
    assert "  the changed script runs on mps" in result.err.splitlines()
    again = fix(folder, "--cuda-as-mps", "--write", "port.py")
    line = "anymps: port.py is not written: it differs from HEAD; commit it first (--force writes it)"
    assert (again.status, again.err.splitlines()) == (2, [line])


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("x = (", ("bad.py",), "bad.py, line 1, is not valid Python: '(' was never closed"),
        ("x = 1", ("--write", "bad.py"), "bad.py is not written: it is not under version control (--force writes it)"),
        ("x = 1", ("nowhere.py",), "there is no script nowhere.py"),
        (
            "x = 1",
            ("x.ipynb",),
            "x.ipynb is a notebook, and anymps fix works on scripts: convert it with 'jupyter nbconvert --to script'",
        ),
    ],
)
def test_bad_input(folder: Path, text: str, words: tuple[str, ...], line: str) -> None:
    """One line and nothing changed."""
    (folder / "bad.py").write_text(text)
    (folder / "x.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    result = fix(folder, *words)
    assert (result.status, result.err.splitlines()) == (2, [f"anymps: {line}"])
    assert (folder / "bad.py").read_text() == text


def test_all_files_are_written_or_none(folder: Path) -> None:
    """One of them differs from HEAD: the other stays as it is, too."""
    text = "import torch\nimport net\n\nx = torch.ones(3, 4).cuda()\nprint(net.net()(x).shape)\n"
    (folder / "net.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(4, 2).cuda()\n")
    (folder / "port.py").write_text(text)
    commit(folder)
    path = folder / "net.py"
    path.write_text(path.read_text() + "# mine\n")
    result = fix(folder, "--cuda-as-mps", "--write", "port.py")
    line = "anymps: net.py is not written: it differs from HEAD; commit it first (--force writes it)"
    assert (result.status, result.err.splitlines()[-1]) == (2, line)
    assert ((folder / "port.py").read_text(), path.read_text().endswith("# mine\n")) == (text, True)


PLAIN = """
import torch

model = torch.nn.Linear(4, 1).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 4, device="mps")).sum().backward()
    optimizer.step()
""".lstrip()


@pytest.mark.parametrize(
    ("options", "ran"), [((), "the script runs"), (("--steps", "2"), "the first steps of the script run")]
)
def test_a_script_without_findings(options: tuple[str, ...], ran: str, folder: Path) -> None:
    """It is told that nothing needs a fix, not that nothing can be fixed."""
    (folder / "train.py").write_text(PLAIN)
    result = fix(folder, *options, "train.py")
    told = f"anymps: nothing needs a fix: {ran} on mps, without findings"
    assert (result.status, result.out, result.err.splitlines()[1:]) == (0, "", [told])


def test_a_long_training_is_checked_by_a_few_steps(folder: Path) -> None:
    """Each run ends after them."""
    (folder / "train.py").write_text(TRAIN.replace("range(6)", "range(10**9)"))
    result = fix(folder, "--steps", "3", "train.py")
    assert result.status == 0, result.err
    assert "  the first steps of the changed script run on mps" in result.err.splitlines()


def test_a_run_that_takes_too_long_is_told(folder: Path) -> None:
    """With what ends it earlier."""
    (folder / "train.py").write_text("import time\n\ntime.sleep(600)\n")
    result = fix(folder, "--seconds", "1", "train.py")
    line = "anymps: the script did not end within 1 s: shorten it, such as with --steps 10, or allow more --seconds"
    assert (result.status, result.err.splitlines()) == (2, ["anymps: run 1: the unchanged script", line])


def test_a_script_with_workers_is_guarded(folder: Path) -> None:
    """Real processes import it: before, they stop the script; after, it ends."""
    (folder / "port.py").write_text(WORKERS)
    result = fix(folder, "--write", "--force", "port.py")
    assert result.status == 0, result.err
    assert (folder / "port.py").read_text() == WORKERS.replace(
        'train()\nprint("done")', 'if __name__ == "__main__":\n    train()\n    print("done")'
    )
    assert "anymps: 1 change: MPS802 in line 11" in result.err.splitlines()
    assert "  before, the script stops at port.py:7: RuntimeError: DataLoader worker" in result.err


def test_an_option_that_names_a_device_still_counts(folder: Path) -> None:
    """The changed script obeys it."""
    (folder / "port.py").write_text(OPTIONS)
    result = fix(folder, "--cuda-as-mps", "port.py")
    assert result.status == 0, result.err
    assert runs_of(result) == [
        "1: the unchanged script",
        "2: the first steps without a GPU and the unchanged script without --cuda-as-mps",
        "3: the changed script on mps and one step with --no-cuda",
    ]
    assert "anymps: 1 change: MPS409 in line 7" in result.err.splitlines()
    assert "  with --no-cuda, the script stays on the CPU" in result.err.splitlines()


def test_a_line_that_takes_a_device_is_told_with_its_reason(folder: Path) -> None:
    """It stopped the script; the change of the option's default mends it."""
    option = 'parser.add_argument("--device", default="cuda")'
    lines = [
        "import argparse, torch",
        "parser = argparse.ArgumentParser()",
        option,
        "device = parser.parse_args().device",
    ]
    (folder / "port.py").write_text("\n".join([*lines, "x = torch.ones(3).to(device)", ""]))
    result = fix(folder, "port.py")
    assert result.status == 0, result.err
    assert "anymps: 1 change: MPS407 in line 3" in result.err.splitlines()
    assert "  MPS407  port.py:5  needs no change: the changed script runs past it" in result.err.splitlines()


def test_the_mac_of_the_projects_settings(folder: Path) -> None:
    """It is the Mac where neither an option nor the environment names one, and may be misspelt."""
    script = "import torch\n\ntorch.ones(2).to('mps')\n"
    (folder / "port.py").write_text(script + "raise ValueError(f'{torch.mps.recommended_max_memory() >> 30} GiB')\n")
    (folder / "pyproject.toml").write_text('[tool.anymps]\nmac = "M1 8GB"\n')
    for words, size in (((), 5), (("--mac", "M2 16GB"), 11)):
        result = run_command("-m", "anymps", "fix", *words, "port.py", cwd=folder)
        assert f"  the script stops at port.py:4: ValueError: {size} GiB" in result.err.splitlines(), result.err
    (folder / "pyproject.toml").write_text('[tool.anymps]\nmac = "M7 8GB"\n')
    result = run_command("-m", "anymps", "fix", "port.py", cwd=folder)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert result.err.startswith(f"anymps: {folder}/pyproject.toml: [tool.anymps] mac: ")


def test_the_native_core_is_built_before_the_runs(folder: Path, tmp_path: Path) -> None:
    """They may write nothing of the user's, and so keep none: a first `anymps fix` would have ended with that."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\ncase "$*" in *--version*|*-dump*) exec c++ "$@";; esac\necho no room >&2; exit 1\n')
    compiler.chmod(0o755)
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home"), "CXX": str(compiler)}
    result = run_command("-m", "anymps", "fix", "port.py", cwd=folder, env={**home, "ANYMPS_CACHE_DIR": ""})
    assert (result.status, "run 1: " in result.err) == (2, False), result.err
    assert result.err.splitlines()[-1] == "  no room"


def test_an_options_default_is_what_changes(folder: Path) -> None:
    """The lines that use it stay; other values of it still count. Also of a module that is run by its name."""
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "port.py").write_text(
        "import argparse\nimport torch\n\np = argparse.ArgumentParser()\n"
        "p.add_argument('--dev', default='cuda:0')\na = p.parse_args()\ndevice = torch.device(a.dev)\n"
        "print(torch.nn.Linear(4, 2).to(device)(torch.ones(3, 4, device=device)).shape)\n"
    )
    result = fix(folder, "--cuda-as-mps", "-m", "pkg.port")
    assert result.status == 0, result.err
    assert changed_lines(result) == [
        "--- a/pkg/port.py",
        "+++ b/pkg/port.py",
        "-p.add_argument('--dev', default='cuda:0')",
        "+p.add_argument('--dev', default='mps' if torch.backends.mps.is_available() else 'cuda:0')",
    ], result.err
    assert "  the changed script runs on mps" in result.err.splitlines()


def test_the_answers_for_cuda_are_not_for_the_changed_script(folder: Path) -> None:
    """Also where the environment asks for them."""
    result = run_command("-m", "anymps", "fix", "port.py", cwd=folder, env={"ANYMPS_CUDA_AS_MPS": "1"})
    assert runs_of(result)[1] == "2: the first steps without a GPU and the unchanged script without --cuda-as-mps"
    assert "  the changed script runs on mps" in result.err.splitlines(), result.err
