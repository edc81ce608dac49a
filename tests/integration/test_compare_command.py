"""`anymps compare` on scripts, in real processes: what diverges, what agrees, and what cannot be compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRAINING = """
import torch
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), {layer}, torch.nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
for step in range(13):
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled={autocast}):
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

HARD_CODED = """
import torch
torch.manual_seed(3)
model = torch.nn.Linear(8, 8).cuda()
for step in range(3):
    loss = model(torch.ones(4, 8, device="cuda")).square().mean()
    loss.backward()
torch.cuda.synchronize()
"""

SCALER_FOR_CUDA = """
import warnings
warnings.simplefilter("ignore")
import torch
scaler = torch.amp.GradScaler("cuda")
weight = torch.ones(3, device="mps", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(2):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(weight @ torch.eye(3, device="mps"), torch.zeros(3, device="mps"))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

ATTENTION = """
import torch
import torch.nn.functional as F
device = "mps" if torch.backends.mps.is_available() else "cpu"
torch.manual_seed(0)
blocks = torch.nn.ModuleList([torch.nn.Linear(32, 96) for _ in range(3)]).to(device)
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
data = torch.randn(4, 16, 32).to(device)
for step in range(3):
    x = data
    for block in blocks:
        parts = block(x).split(32, dim=2)
        q, k, v = (part.reshape(4, 16, 2, 16).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(4, 16, 32)
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

STOPS = """
import torch
device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
loss = torch.ones(3, requires_grad=True).to(device).sum()
loss.backward()
torch.ones(1, dtype=torch.float64).to(device)
"""


def run(folder: Path, text: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the comparison as JSON, and what was said."""
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "anymps", "compare", "--report", "json=found.json", *options, script.name]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = folder / "found.json"
    return answer.returncode, json.loads(found.read_text(encoding="utf-8")) if found.exists() else {}, answer.stderr


def causes(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Causes and operators."""
    return [(it["cause"], it["call"]["operator"]) for it in found["divergences"]]


def test_dropout_draws_different_streams_unless_the_cpu_draws(tmp_path: Path) -> None:
    """The only cause; with the CPU's numbers all losses are the same but for rounding, traced or not."""
    text = TRAINING.format(layer="torch.nn.Dropout(0.1)", autocast=False)
    status, found, _ = run(tmp_path, text)
    assert (status, causes(found)) == (1, [("random", "aten.bernoulli_.float")])
    status, found, _ = run(tmp_path, text, "--random", "cpu", "--full-steps", "3")
    assert (status, found["agrees"], len(found["losses"]["values"])) == (0, True, 13)
    assert found["losses"]["difference"] < 1e-6  # the device computes small calls on one thread, the CPU on all
    assert [run["traced_steps"] for run in found["runs"]] == [[0, 1, 2, 5, 11]] * 2


def test_autocast_lists(tmp_path: Path) -> None:
    """Layer norm is on the lists of mps, not on the CPU's."""
    status, found, _ = run(tmp_path, TRAINING.format(layer="torch.nn.ReLU()", autocast=True), "--steps", "2")
    assert status == 1
    assert causes(found)[0] == ("autocast", "aten.native_layer_norm.default")
    assert "is on the autocast lists of cuda and mps, but not of cpu." in found["divergences"][0]["why"]
    assert found["runs"][0]["steps"] == 2


def test_a_script_that_asks_for_cuda(tmp_path: Path) -> None:
    """It is compared unedited, by a second run."""
    status, found, said = run(tmp_path, HARD_CODED)
    assert (status, found["agrees"], found["used"], found["losses"]["difference"]) == (0, True, True, 0.0)
    assert "running it again with mps in its place" in said


def test_attention_that_runs_in_pieces_on_mps(tmp_path: Path) -> None:
    """The CPU has one operator for attention and its backward, mps many: the runs agree.

    Keys and their transpose have one shape here.
    """
    status, found, _ = run(tmp_path, ATTENTION)
    assert (status, causes(found), found["agrees"]) == (0, [], True)
    assert found["losses"]["difference"] < 1e-6


def test_what_the_script_has_for_cuda_is_off_in_both_runs(tmp_path: Path) -> None:
    """Autocast and the gradient scaler for CUDA do nothing for mps, so they do nothing for the CPU either."""
    status, found, _ = run(tmp_path, SCALER_FOR_CUDA)
    assert (status, causes(found), found["agrees"]) == (0, [], True)
    assert found["losses"]["values"][0][1:] == [1.0, 1.0]


def test_a_script_that_stops_on_one_side(tmp_path: Path) -> None:
    """What both ran is compared, and the error has its line."""
    status, found, _ = run(tmp_path, STOPS)
    assert (status, found["agrees"], found["divergences"]) == (1, False, [])
    assert found["runs"][0]["error"] is None
    assert "doesn't support float64" in found["runs"][1]["error"]
    assert found["runs"][1]["error_line"]["line"] == 6


def test_a_script_that_computes_on_the_cpu(tmp_path: Path) -> None:
    """Nothing ran on mps: exit code 4."""
    status, found, said = run(tmp_path, "import torch\ntorch.ones(3, requires_grad=True).sum().backward()\n")
    assert (status, found["used"]) == (4, False)
    assert said.endswith("anymps: exit code 4: nothing ran on mps\n")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (
            "import torch\nraise ValueError('no')\n",
            (),
            "the script fails in both runs, so there is ",
        ),
        ("", ("--of", "cuda"), "the run on cuda could not start: torch finds no NVIDIA GPU"),
        ("", ("--of", "cpu", "--with", "cpu"), "--of cpu and --with cpu name the same device"),
        (
            "",
            ("--with", "cpu", "--of", "cuda", "--kernels", "real"),
            "--kernels applies to a run on mps, but neither --of nor --with is mps",
        ),
    ],
)
def test_what_cannot_be_compared(tmp_path: Path, text: str, options: tuple[str, ...], expected: str) -> None:
    """One line, and 2."""
    status, _, said = run(tmp_path, text, *options)
    assert status == 2
    assert said.splitlines()[-1].startswith(f"anymps: {expected}")
    assert "Traceback" not in said
