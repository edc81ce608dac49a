"""Changed texts of files run in the place of those on disk, in a process and in those that it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import linecache, os, runpy, sys
from anymps.children import begin, serve_sources
start = sys.argv[1]
if start == "begin":
    begin()
else:
    serve_sources({os.path.abspath("net.py"): start, os.path.abspath("train.py"): os.environ["OTHER"]})
import net
print(net.X, net.__file__, linecache.getline(net.__file__, 1).strip())
print(runpy.run_path("train.py", run_name="__mp_main__")["Y"])
import plain
print(plain.Z)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script and two modules, compiled already, and the changed texts of two of these three."""
    for name, text in (("net", "X = 1"), ("train", "Y = 1"), ("plain", "Z = 1")):
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
    (tmp_path / "net2.txt").write_text("X = 2\n")
    (tmp_path / "train2.txt").write_text("Y = 2\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "."], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("start", ["begin", "net2.txt"])
def test_what_runs(folder: Path, start: str) -> None:
    """Path and lines are those of the file; what is compiled of it stays and is not read."""
    changed = {str(folder / f"{name}.py"): str(folder / f"{name}2.txt") for name in ("net", "train")}
    (folder / "settings.json").write_text(json.dumps({"sources": changed, "device": False}))
    compiled = sorted((path, path.read_bytes()) for path in (folder / "__pycache__").iterdir())
    environment = {**os.environ, "OTHER": "train2.txt", "PYTHONPATH": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("ANYMPS_CHILDREN", None)
    program = PROGRAM.replace("    begin()", f"    os.environ['ANYMPS_CHILDREN'] = {str(folder)!r}; begin()")
    done = subprocess.run(
        [sys.executable, "-c", program, start], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [f"2 {folder / 'net.py'} X = 2", "2", "1"], done.stderr
    assert sorted((path, path.read_bytes()) for path in (folder / "__pycache__").iterdir()) == compiled
