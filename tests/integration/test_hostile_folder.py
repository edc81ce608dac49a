"""Commands run in a folder full of hostile modules: none of them is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

from processes import PATIENCE, clean_environment, run_anymps

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
THIRD_PARTY = ("anymps", "torch", "numpy", "click", "rich", "jinja2", "platformdirs", "sitecustomize")
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
    ["convert", "../model.pt", "../out.pt"],
    ["doctor"],
)


@pytest.mark.slow
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


# What a script may leave of the Python that closes its recording, and which names its own modules may have.
OWN_MODULES = ("click", "html", "jinja2", "markupsafe", "platformdirs", "pygments", "rich")
WRECKS = """
import builtins, io, json, os, pathlib, sys, tempfile, time, warnings
import click, html, jinja2, markupsafe, platformdirs, pygments, rich
assert {click.MINE, html.MINE, jinja2.MINE, markupsafe.MINE, platformdirs.MINE, pygments.MINE, rich.MINE} == {"mine"}
def broken(*args, **options):
    raise ValueError("the script's own")
json.dumps = json.loads = time.time = pathlib.Path.exists = broken
builtins.print = builtins.open = io.open = broken
warnings.simplefilter("error")
os.environ.clear()
sys.setrecursionlimit(80)
sys.path.clear()
sys.meta_path.clear()
"""
CLOSES = """
import concurrent.futures, os, shutil, signal, sys, tempfile, threading, time
concurrent.futures.ThreadPoolExecutor().submit(int)
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
def rings(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, rings)
signal.setitimer(signal.ITIMER_REAL, 5, 0.01)
there = tempfile.mkdtemp()
os.chdir(there)
os.rmdir(there)
sys.modules.clear()
sys.stdout.close()
os.close(2)
"""


@pytest.mark.parametrize("ending", [WRECKS, CLOSES], ids=["wrecks", "closes"])
def test_a_script_that_changes_python_has_its_report(tmp_path: Path, ending: str) -> None:
    """Whatever it leaves behind: modules of its own, functions of Python replaced, closed streams, pools, timers."""
    for name in OWN_MODULES:
        (tmp_path / f"{name}.py").write_text("MINE = 'mine'\n")
    (tmp_path / "train.py").write_text(SCRIPT + ending)
    options = ("--mac", "M1 8GB", "--report", "html=page.html", "--report", "json=report.json")
    ended = run_anymps("run", *options, "train.py", cwd=tmp_path)
    assert ended.status == 0, ended.err
    assert "Full report: page.html" in ended.err
    assert "/src/anymps/" not in ended.err, ended.err  # torch itself has tracebacks at the end of such a Python
    assert "findings" in json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert "</html>" in (tmp_path / "page.html").read_text(encoding="utf-8")
