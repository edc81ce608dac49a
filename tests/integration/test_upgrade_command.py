"""`anymps upgrade` on real scripts: one run tells of every release, and the recording can be asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from processes import run_anymps

pytestmark = pytest.mark.integration

SCRIPT = """\
import sys
import torch
from torch.nn import functional as F

device = torch.device("mps")
weight = torch.rand(2, 1, device=device)
scale = torch.tensor([1.0, 2.0])
for _ in range(int(sys.argv[1])):
    x = torch.rand(8, 8, device=device)
    counts = torch.histc(torch.arange(8, device=device), 4)
    y = x * scale[1]
    z = F.channel_shuffle(x.view(1, 4, 4, 4), 2)
    w = x.t() @ x
print("done")
"""


def test_a_script(tmp_path: Path) -> None:
    """The script runs once, to its end though an operator has no kernel; the cells are those of the tables."""
    tmp_path.joinpath("train.py").write_text(SCRIPT)
    words = ["upgrade", "--mac", "M3 Pro 18GB, macOS 27", "--report", "json=upgrade.json", "train.py", "3"]
    answer = run_anymps(*words, cwd=tmp_path)
    assert answer.lines[0] == "done"
    report = json.loads((tmp_path / "upgrade.json").read_text())
    assert report["run"]["torch_version"] == torch.__version__
    calls = {
        (cell["torch"], call["site"]["line"]): call["outcome"]
        for cell in report["cells"] for call in cell["calls"] if cell["macos"] == "macOS 27"
    }  # fmt: skip
    lines = {number: [calls.get((f"2.{minor}", number), "OK") for minor in range(11, 16)] for number in (10, 11, 12)}
    assert lines == {
        10: ["refused", "refused", "OK", "slower", "OK"],
        11: ["OK", "wrong", "wrong", "OK", "OK"],
        12: ["falls back"] * 5,
    }


def test_its_recording(tmp_path: Path) -> None:
    """What `anymps run` keeps is asked without another run."""
    tmp_path.joinpath("train.py").write_text(SCRIPT)
    assert run_anymps("run", "--fallback", "--record", "run.anymps", "--no-report", "train.py", "1", cwd=tmp_path).lines
    answer = run_anymps("upgrade", "--from", "2.12", "--to", "2.14", "run.anymps", cwd=tmp_path)
    changes = [line.strip() for line in answer.lines if line.startswith("  -  2.12 -> 2.14:")]
    assert changes == [
        "-  2.12 -> 2.14: `histc` is slower: histc (MPS864, train.py:10)",
        "-  2.12 -> 2.14: `histc` of int64 becomes native (train.py:10)",
        "-  2.12 -> 2.14: `mul` is right again (MPS605, train.py:11)",
    ]
