"""A plan of a script, made by the command in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from processes import PATIENCE, Result, run_command

TRAINING = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
width, size = 2048, int(sys.argv[1]) if len(sys.argv) > 1 else None
block = lambda: nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
net = nn.Sequential(*(block() for _ in range(6))).to("mps")
optimizer = torch.optim.AdamW(net.parameters())
if size is None:
    batches = (batch[0] for batch in DataLoader(TensorDataset(torch.randn(20000, width)), batch_size=8192))
else:
    batches = (torch.randn(size, width) for _ in range(5))
for batch in batches:
    loss = net(batch.to("mps")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def plan(*words: str, cwd: Path, timeout: float = PATIENCE) -> Result:
    """Runs the command as a user does."""
    return run_command("-m", "anymps", "plan", *words, cwd=cwd, env={"HF_HUB_OFFLINE": "1"}, timeout=timeout)


def planned(cwd: Path, *words: str) -> dict[str, Any]:
    """The plan as JSON."""
    result = plan("--report", "json=plan.json", *words, cwd=cwd)
    assert (result.status, result.err) == (0, "anymps: report: plan.json\n")
    document: dict[str, Any] = json.loads((cwd / "plan.json").read_text(encoding="utf-8"))
    return document


def script(folder: Path, text: str) -> str:
    """A script in the folder."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    return "train.py"
