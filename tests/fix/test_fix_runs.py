"""One run of a script for `anymps fix`: what it sees of the machine, what it leaves, and what is read of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anymps.fix import How, Program, Runs
from anymps.fix._runs import _written
from anymps.runs import Order


def test_what_a_script_sees_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers for CUDA unless that is asked for; without a GPU there is none. What it writes is kept apart."""
    (tmp_path / "train.py").write_text(
        "import os, torch\nprint(int(torch.backends.mps.is_available()), int(torch.cuda.is_available()))\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES') or 9)\nopen('log.txt', 'w').write('1\\n')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    program = Program.read(Path("train.py"))
    runs = Runs(Order(("train.py",)), print)
    found = runs.run([(program, How("x", device, answered)) for device, answered in (("cpu", False), ("mps", True))])
    assert [ran.printed for ran in found] == [(0.0, float(torch.cuda.is_available()), 9.0), (1.0, 1.0, 3.0)]
    assert [ran.files for ran in found] == [{"log.txt": "1\n"}] * 2
    assert not (tmp_path / "log.txt").exists()


def test_mps_has_the_random_numbers_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its losses are compared with those of the CPU: also those of dropout, and of what is filled in place."""
    (tmp_path / "train.py").write_text(
        "import sys, torch\ndevice = 'mps' if torch.backends.mps.is_available() else 'cpu'\n"
        "x = torch.nn.functional.dropout(torch.randn(9, device=device)) + torch.randperm(9, device=device)\n"
        "print(*(x + torch.empty(9, device=device).uniform_()).tolist())\n"
    )
    monkeypatch.chdir(tmp_path)
    program = Program.read(Path("train.py"))
    runs = Runs(Order(("train.py",)), print)
    hows = (How("x", "cpu"), How("x", draws_on_cpu=True), How("x"))
    on_cpu, drawn, own = (ran.printed for ran in runs.run([(program, how) for how in hows]))
    assert len(on_cpu) == 9
    assert drawn == pytest.approx(on_cpu)
    assert own != pytest.approx(on_cpu)


def test_what_a_script_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By names without numbers of one run; its changed sources are none of it, and a copy of one is the unchanged."""
    monkeypatch.chdir(tmp_path)
    files = tmp_path / "files"
    here = files / str(tmp_path)[1:]
    names = ("a.csv", "m.pt", "e.12.log", "e.13.log", "t.py", "t.backup")
    for name, data in zip(names, (b"1", b"\0", b"2", b"3", b"4", b"new = 1\n"), strict=True):
        (here / "runs").mkdir(parents=True, exist_ok=True)
        (here / "runs" / name).write_bytes(data)
    (files / "srv.txt").write_text("5")
    assert _written(files, {str(tmp_path / "runs" / "t.py")}, {b"new = 1\n": b"old = 1\n"}) == {
        "runs/a.csv": "1",
        "runs/t.backup": "old = 1\n",
        "runs/e.#.log": "23",
        "runs/m.pt": None,
        "/srv.txt": "5",
    }
