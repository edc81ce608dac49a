"""Every command, given a name with escape sequences, line ends and orders to GitHub's log: it is shown, not obeyed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from anymps.commands import _MODULES
from checkpoint_files import write_safetensors
from fuzz import worker
from fuzz.worker import _CONTROL
from processes import run_command
from recordings import bytes_of, small

pytestmark = pytest.mark.integration

NAME = "::error::a\x1b[31m\n::error::b\x9b2J\u202e##[error]c"
SCRIPT = """
import torch
model = torch.nn.Linear(8, 1).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    loss = model(torch.ones(4, 8, device="mps")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    value = loss.item()
"""
RUNS = ("{}.py", "{}.py:f", "-v", "-m", "--report")
"""First words of what runs code, in a process of its own."""
COMMANDS = {
    "bench": [["{}.py"], ["{}.py:f", "--device", "cpu"], ["no{}.py"]],
    "compare": [["{}.py"], ["no{}.py"]],
    "convert": [["{}.pt", "out{}.pt"], ["{}.pt", "{}"], ["{}", "out"], ["{}.safetensors", "o"], ["{}.pt", "{}.pt"]],
    "coverage": [["{}"], ["--torch", "{}", "add"]],
    "diff": [["{}.anymps", "{}.anymps"], ["no", "{}.anymps"]],
    "explain": [["{}"]],
    "fix": [["{}.py"], ["no{}.py"]],
    "kernels": [["list", "{}"], ["add", "{}"]],
    "plan": [["{}.py"], ["{}.py", "--mac", "{}"], ["{}.py", "--what-if", "{}"]],
    "report": [
        ["{}.anymps"],
        ["{}.txt"],
        *(["{}.anymps", "--format", form] for form in ("markdown", "github")),
        ["{}.anymps", "{}.anymps"],
        ["{}.anymps", "--baseline", "{}"],
        ["{}.anymps", "--format", "html", "--output", "no/{}"],
    ],
    "run": [["-v", "{}.py"], ["-m", "{}"], ["{}.py", "--mac", "{}"], ["--report", "html={}.html", "{}.py"]],
    "upgrade": [
        ["{}.py"],
        ["{}.anymps"],
        ["{}.txt"],
        ["{}.anymps", "--mac", "{}"],
        ["{}.anymps", "--report", "html=no/{}"],
        ["no{}.py"],
    ],
    "verify": [["--read", "{}"]],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all kinds with the name."""
    here = tmp_path_factory.mktemp("names")
    (here / f"{NAME}.py").write_text(SCRIPT + "def f(device=None):\n    return 1\n")
    torch.save({NAME: torch.ones(2, dtype=torch.float64)}, here / f"{NAME}.pt")
    write_safetensors(here / f"{NAME}.safetensors", b"{}")
    (here / f"{NAME}.txt").write_text(f"fails tests/{NAME!r}\n")
    (here / f"{NAME}.anymps").write_bytes(bytes_of(small(script=NAME, directory=NAME, arguments=[NAME], mac=NAME)))
    return here


def test_all_commands_are_here() -> None:
    """A new command comes with its names; doctor takes none."""
    assert COMMANDS.keys() == set(_MODULES) - {"doctor"}


LIGHT = [(command, words) for command, rows in COMMANDS.items() for words in rows if words[0] not in RUNS]
HEAVY = [(command, words) for command, rows in COMMANDS.items() for words in rows if words[0] in RUNS]


def check(status: object, *streams: str) -> None:
    """Neither stream has a control character of the name, or a line that begins with its order."""
    assert status != 70, streams
    for text in streams:
        assert "Traceback" not in text
        assert not _CONTROL.findall(text)
        assert not re.findall(r"(?m)^\s*::error::.*|##\[error\].*", text)


@pytest.mark.parametrize(("command", "words"), LIGHT)
def test_names(command: str, words: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files that are read, or are not there."""
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "here"))
    check(*worker.run([command, *(word.format(NAME) for word in words)]))


@pytest.mark.slow
@pytest.mark.parametrize(("command", "words"), HEAVY)
def test_names_of_scripts(command: str, words: list[str], folder: Path, tmp_path: Path) -> None:
    """Of scripts that are run."""
    here = shutil.copytree(folder, tmp_path / "here")
    arguments = [word.format(NAME) for word in words]
    ended = run_command("-m", "anymps", command, *arguments, cwd=here, env={"PYTHONPATH": str(here)})
    check(ended.status, ended.out, ended.err)
