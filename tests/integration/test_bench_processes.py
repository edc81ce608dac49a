"""`anymps bench` in processes of its own: a script's optimizer steps, ended when enough are timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import Result, run_anymps

pytestmark = pytest.mark.integration

SCRIPT = """\
import sys, torch
model = torch.nn.Linear(4, 4).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    print("step", step)
    optimizer.zero_grad()
    model(torch.ones(2, 4, device="mps")).sum().backward()
    optimizer.step()
"""


def bench(folder: Path, *words: str, script: str = SCRIPT) -> Result:
    """Run `anymps bench` on the script."""
    folder.joinpath("train.py").write_text(script)
    return run_anymps("bench", "--warmup", "2", "--repeat", "8", *words, cwd=folder)


def test_steps_of_a_script(tmp_path: Path) -> None:
    """Two steps to warm up, eight that count, then the script is ended; its output is on stderr."""
    result = bench(tmp_path, "--json", "--no-predict", "train.py", "1000")
    assert result.status == 0
    (row,) = json.loads(result.out)["timings"]
    assert (row["name"], row["device"], row["virtual"], row["runs"]) == ("step of train.py", "mps:0", True, 8)
    assert [line for line in result.err.splitlines() if line.startswith("step")][-1] == "step 9"
    assert "VIRTUAL mps device" in result.err


@pytest.mark.slow
def test_prediction_for_a_script(tmp_path: Path) -> None:
    """Some more steps are recorded, and the prediction for the chosen Mac is told; this machine's time is no Mac's."""
    result = bench(tmp_path, "--json", "--mac", "M2 Max 32GB", "train.py", "1000")
    assert result.status == 0
    document = json.loads(result.out)
    assert document["timings"][0]["runs"] == 8
    (row,) = document["predictions"]
    assert (row["name"], row["mac"], row["held"]) == ("step of train.py", "M2 Max 32GB", None)
    assert 0 < row["low_ns"] < row["predicted_ns"] < row["high_ns"]
    assert row["text"].startswith("A step of train.py would take about ")


@pytest.mark.slow
def test_optimizers_that_take_turns(tmp_path: Path) -> None:
    """A round of both is a step: it is timed as one, and predicted as one, with the calls of both."""
    one = bench(tmp_path, "--json", "train.py", "100")
    head, loop = SCRIPT.split("for step")
    other = [text.replace("optimizer", "other").replace("model", "half") for text in (head, loop)]
    both = "\n".join([head, other[0], f"for step{loop}", other[1].partition("\n")[2].partition("\n")[2]])
    two = bench(tmp_path, "--json", "train.py", "100", script=both)
    assert (one.status, two.status) == (0, 0)
    documents = [json.loads(result.out) for result in (one, two)]
    assert [document["timings"][0]["runs"] for document in documents] == [8, 8]
    launches = [
        sum(share["ns"] for share in document["predictions"][0]["shares"] if share["what"] == "launch")
        for document in documents
    ]
    assert launches[1] == pytest.approx(2 * launches[0], rel=0.2)


def test_fault_of_the_script(tmp_path: Path) -> None:
    """A script that fails keeps its traceback and its exit code."""
    result = bench(tmp_path, "train.py", "many")
    assert (result.status, result.out) == (1, "")
    assert result.err.splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'many'"
