"""A plan's recording has the tables of a run's: the same operators, with what each was given and made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from processes import run_with_torch

SCRIPT = """
    import torch
    from torch import nn

    import anymps

    anymps.enable("M2 8GB", substrate={substrate!r}, quiet=True)
    with anymps.record({path!r}):
        model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to("mps")
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        tokens, targets = torch.zeros(3, 5, dtype=torch.int64).to("mps"), torch.zeros(15, dtype=torch.int64).to("mps")
        for _ in range(2):
            loss = nn.functional.cross_entropy(model(tokens).view(-1, 4), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        x = torch.ones(4, 4, device="mps")
        x.topk(2), torch.cat([x, x]), torch.max(x, 0), x @ x
        nn.LSTM(4, 4).to("mps")(x.view(1, 4, 4))
"""


def told(substrate: str, folder: Path) -> list[tuple[object, ...]]:
    """Each operator with its fate, inputs and outputs, and how often it was called."""
    path = folder / f"{substrate}.anymps"
    run_with_torch(SCRIPT.format(substrate=substrate, path=str(path)))
    with closing(sqlite3.connect(path)) as tables, tables:
        return tables.execute(
            "SELECT name, fate, inputs, outputs, sum(count) FROM totals "
            "JOIN signatures ON signatures.id = totals.signature JOIN operators ON operators.id = signatures.operator "
            "GROUP BY name, fate, inputs, outputs ORDER BY name, fate, inputs, outputs"
        ).fetchall()


@pytest.mark.usefixtures("virtual_device")
def test_operators_of_a_plan_are_those_of_a_run(tmp_path: Path) -> None:
    """Nothing is computed on shapes, and yet every call has its outputs."""
    run, plan = told("host", tmp_path), told("shape", tmp_path)
    assert plan == run
    made = {name for name, _, _, outputs, _ in plan if outputs != "[]"}
    assert made >= {"aten::linear", "aten::linear_backward", "aten::topk", "aten::mm", "aten::_lstm_mps"}
