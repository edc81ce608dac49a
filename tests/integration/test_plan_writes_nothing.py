"""After `anymps plan` every file is as it was: beside a script that saves, its programs and its workers."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import run_command

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SAVES = """
import os, torch
from torch import nn
net = nn.Linear(64, 64).to("mps")
optimizer = torch.optim.AdamW(net.parameters())
with open("log.txt", "a") as log:
    for step in range(2):
        loss = net(torch.randn(8, 64, device="mps")).square().mean()
        loss.backward()
        optimizer.step()
        log.write("step\\n")
torch.save(net.state_dict(), "best.pt.part")
os.replace("best.pt.part", "best.pt")
os.remove("old.txt")
state = torch.load("best.pt", weights_only=True)
assert state["weight"].shape == (64, 64)
"""

PROGRAMS = """
import ctypes, os, subprocess, torch
from torch import nn
from torch.utils.data import DataLoader
library = ctypes.CDLL(None)
def worker(number):
    library.chmod(b"log.txt", 0o600)
    subprocess.run(["touch", "-d", "2001-01-01", "old.txt"], stderr=subprocess.DEVNULL)
net = nn.Linear(4, 4).to("mps")
optimizer = torch.optim.SGD(net.parameters())
options = {"num_workers": 2, "worker_init_fn": worker, "multiprocessing_context": "fork"}
loader = DataLoader(torch.rand(8, 4), batch_size=4, **options)
library.shm_open(b"/anymps-planned", 0o102, 0o600)
os.system("chmod 600 best.pt; touch old.txt; echo left > /dev/shm/anymps-planned-too")
os.chmod("log.txt", 0o640)
assert os.stat("log.txt").st_mode & 0o777 == 0o640
for batch in loader:
    net(batch.to("mps")).square().mean().backward()
    optimizer.step()
"""


def hashes(folder: Path) -> dict[str, str]:
    """Every entry below a folder: its mode, its times, and a hash of its content."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        known = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        found[str(path.relative_to(folder))] = f"{known.st_mode:o} {known.st_mtime_ns} {known.st_ctime_ns} {content}"
    return found


def planned(folder: Path, *words: str) -> dict[str, Any]:
    """The plan of a script in the folder; no entry of the folder may differ afterwards."""
    before = hashes(folder)
    report = folder.parent / "plan.json"
    options = ("--mac", "M1 8GB", "--report", f"json={report}")
    result = run_command("-m", "anymps", "plan", *options, *words, cwd=folder)
    assert result.status == 0, result.err
    assert hashes(folder) == before
    document: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with good files."""
    (tmp_path / "work").mkdir()
    for name in ("best.pt", "old.txt", "log.txt"):
        (tmp_path / "work" / name).write_text("good", encoding="utf-8")
    return tmp_path / "work"


def names(paths: list[str]) -> list[str]:
    """The last parts of paths."""
    return sorted(Path(path).name for path in paths)


def test_a_script_that_saves_finds_its_files_as_they_were(folder: Path) -> None:
    """What it wrote and removed is told."""
    (folder / "train.py").write_text(SAVES, encoding="utf-8")
    dropped = planned(folder, "train.py")["dropped"]
    assert (names(dropped["written"]), names(dropped["removed"])) == (["best.pt", "log.txt"], ["old.txt"])


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp, which Linux has, refuse it")
def test_programs_and_workers_leave_modes_times_and_shared_memory(folder: Path) -> None:
    """What they change by the system's own calls is refused, and shared memory that they made is gone."""
    (folder / "train.py").write_text(PROGRAMS, encoding="utf-8")
    before = set(os.listdir("/dev/shm"))
    dropped = planned(folder, "--no-larger", "train.py")["dropped"]
    assert names(dropped["written"]) == ["log.txt"]
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "planned" in name]


def test_a_script_that_may_write_writes(folder: Path) -> None:
    """With --allow-writes its files are there."""
    (folder / "train.py").write_text(SAVES, encoding="utf-8")
    result = run_command("-m", "anymps", "plan", "--mac", "M1 8GB", "--allow-writes", "train.py", cwd=folder)
    assert result.status == 0, result.err
    assert "dropped" not in result.out
    assert not (folder / "old.txt").exists()
    assert (folder / "log.txt").read_text(encoding="utf-8") == "goodstep\nstep\n"
    assert (folder / "best.pt").stat().st_size > 64 * 64 * 4
