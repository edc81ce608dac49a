"""Steps without an optimizer: what ends a script after some rounds of its loop, and which loops end none."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import run_with_torch

RUN = """
import os, torch
from torch import nn
from anymps.runs.inside._loops import end_after
net, first, transform, x = nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), torch.ones(1, 2)
end_after(2, "cpu", lambda: None, lambda loop: print("ended at", loop and f"{{os.path.basename(loop[0])}}:{{loop[1]}}"))
try:
    exec(compile(open({path!r}).read(), {path!r}, "exec"))
finally:
    print("in round", rounds)
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("net(transform(x))", ["ended at infer.py:2", "in round 3"]),
        ("net(torch.ones(rounds, 2))", ["ended at infer.py:2", "in round 3"]),
        ("first(x) if rounds == 1 else net(x)", ["ended at infer.py:2", "in round 4"]),
        ("net(x), first(x)", ["ended at infer.py:2", "in round 3"]),
        ("net(x).sum().backward()", ["ended at infer.py:2", "in round 3"]),
        ("transform(x)", ["in round 9"]),
        ("net(x)\ndef train(): pass\ntrain()", ["in round 9"]),
        ("rounds < 3 and net(x)", ["in round 9"]),
    ],
    ids=["batches", "shapes", "encoder", "pairs", "backwards", "without weights", "before a training", "few"],
)
def test_rounds_of_a_loop_end_a_script(body: str, told: list[str], tmp_path: Path) -> None:
    """After two of them a third shows where the second one ends. A loop that may come before a training goes on."""
    script = tmp_path / "infer.py"
    script.write_text(f"for rounds in range(1, 10):\n    {body}\n")
    assert run_with_torch(RUN.format(path=str(script))).lines == told


def test_an_optimizer_that_exists_is_waited_for(tmp_path: Path) -> None:
    """Its steps count, and nothing that comes before the first."""
    script = tmp_path / "run.py"
    step = "rounds > 6 and optimizer.step(None)"
    made = "optimizer = torch.optim.SGD(net.parameters(), 0.1)"
    script.write_text(f"{made}\nfor rounds in range(1, 10):\n    net(x)\n    {step}\n")
    assert run_with_torch(RUN.format(path=str(script))).lines == ["ended at None", "in round 8"]
