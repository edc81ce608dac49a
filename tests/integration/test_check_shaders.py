"""`anymps run --check-shaders` on a script of the user's, and on kernels that `torch.compile` has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import run_anymps

pytestmark = pytest.mark.integration

SCRIPT = '''\
import torch

library = torch.mps.compile_shader("""
kernel void shift(device float* x, uint i [[thread_position_in_grid]]) {
  float next = x[i + 1];
  x[i] = next;
}
""")
library.shift(torch.ones(64, device="mps"))
'''

COMPILED = """\
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(4 * 64, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4), torch.nn.Softmax(-1),
).to("mps")
compiled = torch.compile(model)
for _ in range(2):
    compiled(torch.randn(8, 3, 8, 8, device="mps")).square().sum().backward()
"""


def _findings(folder: Path, script: str) -> list[tuple[str, str, int]]:
    """Rule, severity and line of what the checker found in a run."""
    (folder / "train.py").write_text(script)
    words = ("run", "--check-shaders", "--no-report", "--fail-on", "never", "--report", "json=r.json", "train.py")
    result = run_anymps(*words, cwd=folder)
    assert result.status == 0, result.err
    report = json.loads((folder / "r.json").read_text())
    return [
        (found["id"], found["severity"], found["site"]["line"])
        for found in report["findings"]
        if found["id"].startswith("MPS85")
    ]


def test_a_script_with_faults(tmp_path: Path) -> None:
    """Both at the line that launched the kernel."""
    assert sorted(_findings(tmp_path, SCRIPT)) == [("MPS851", "error", 9), ("MPS852", "error", 9)]


@pytest.mark.slow
def test_kernels_of_inductor(tmp_path: Path) -> None:
    """Clean but for the running statistics of the batch norm, which all threads of a reduction update in place."""
    found = _findings(tmp_path, COMPILED)
    assert {(rule, severity) for rule, severity, _ in found} == {("MPS852", "warning")}
