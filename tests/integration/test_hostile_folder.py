"""Commands run in a folder full of hostile modules: none of them is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

from processes import PATIENCE, clean_environment

pytestmark = pytest.mark.integration

SCRIPT = """
import torch

model = torch.nn.Linear(4, 2).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.rand(8, 4).to("mps")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
# Each leaves its name behind, then fails.
HOSTILE = (
    "import pathlib, os\nos.write(os.open({mark!r}, os.O_CREAT | os.O_WRONLY | os.O_APPEND), b'{name}\\n')\n1 / 0\n"
)
THIRD_PARTY = ("anymps", "torch", "numpy", "click", "rich", "jinja2", "platformdirs", "ninja", "sitecustomize")
COMMANDS = (
    ["run", "--mac", "M1 8GB", "--record", "../before.anymps", "../train.py"],
    ["run", "-v", "--mac", "M1 8GB", "../train.py"],
    ["report"],
    ["report", "../before.anymps", "--format", "html", "--output", "../page.html"],
    ["diff", "../before.anymps", "../before.anymps"],
    ["plan", "--mac", "M1 8GB", "../train.py"],
    ["bench", "--warmup", "1", "--repeat", "2", "../train.py"],
    ["explain", "MPS202"],
    ["coverage", "take"],
    ["convert", "--dry-run", "../model.pt"],
    ["doctor"],
)


def test_no_command_imports_from_the_current_folder(tmp_path: Path) -> None:
    """Nor do the processes that a command starts; a script's own folder is still the first for the script."""
    folder, mark = tmp_path / "hostile", tmp_path / "imported"
    folder.mkdir()
    for name in (*sys.stdlib_module_names, *THIRD_PARTY):
        (folder / f"{name}.py").write_text(HOSTILE.format(mark=str(mark), name=name))
    (tmp_path / "train.py").write_text(SCRIPT)
    torch.save({"weight": torch.ones(2, dtype=torch.float64)}, tmp_path / "model.pt")
    program = Path(sysconfig.get_path("scripts"), "anymps")
    environment = {**clean_environment(), "ANYMPS_CACHE_DIR": os.environ.get("ANYMPS_CACHE_DIR", "")}
    for words in COMMANDS:
        ended = subprocess.run(
            [program, *words],
            check=False,
            cwd=folder,
            env={name: value for name, value in environment.items() if value},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        imported = sorted(set(mark.read_text().split())) if mark.exists() else []
        assert (ended.returncode, imported) == (0, []), f"{words}\n{ended.stdout}{ended.stderr}"
