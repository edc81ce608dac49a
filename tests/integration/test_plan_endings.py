"""`anymps plan` tells what happened to a script: killed, too slow, a fixed batch, out of memory, hidden packages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from integration.plan_runs import plan, planned, script
from processes import clean_environment, run_command
from time_limits import REACHED, limited_plan

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRAINING = """
import os, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)).to("mps")
optimizer = torch.optim.AdamW(net.parameters())
for step, (batch,) in enumerate(DataLoader(TensorDataset(torch.randn(64, 256)), batch_size=BATCH)):
    EXTRA
    loss = net(batch.to("mps")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

RETRIES = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Linear(1024, 1024).to("mps")
optimizer = torch.optim.SGD(net.parameters())
data = TensorDataset(torch.zeros(4096, 1024))
size = 4096
while size:
    try:
        for (batch,) in DataLoader(data, batch_size=size):
            x = net(batch.to("mps"))
            loss = sum((x * number).repeat(1, 64).square().mean() for number in range(12))
            loss.backward()
            optimizer.step()
        break
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        x = loss = batch = None
        size //= 2
"""


def training(batch: int = 8, extra: str = "pass") -> str:
    """A small training of a data loader's batches."""
    return TRAINING.replace("BATCH", str(batch)).replace("EXTRA", extra)


def test_a_fixed_batch_elsewhere_leaves_the_plan_and_not_the_largest_batch(tmp_path: Path) -> None:
    """The script stops with twice the batch; nobody says that a Mac would."""
    found = planned(
        tmp_path, "--mac", "M1 8GB", "--mac", "M4 16GB", script(tmp_path, training(extra="batch = batch.view(8, 256)"))
    )
    assert [(mac["mac"], mac["verdict"], mac["largest_batch"]) for mac in found["macs"]] == [
        ("M1 8GB", "fits", None),
        ("M4 16GB", "fits", None),
    ]
    unknown = found["largest_batch_unknown"]
    assert unknown["why"] == "stopped"
    assert unknown["problem"].startswith("RuntimeError: shape '[8, 256]' is invalid for input of size 4096")
    assert "Mac" not in unknown["problem"]


def test_changes_that_change_nothing_say_why(tmp_path: Path) -> None:
    """A batch of one cannot be split; another optimizer needs less, and no larger batch is measured unasked."""
    options = ("--what-if", "accumulate=2", "--what-if", "sgd", "--no-larger", "--mac", "M1 8GB")
    found = planned(tmp_path, *options, script(tmp_path, training(1)))
    split, small = found["what_if"]
    assert split["problem"] == "it changed nothing: a batch of 1 cannot be split into 2 parts"
    assert (small["change"], small["problem"]) == ("SGD", "")
    assert found["peak"]["allocated"] - small["peak_allocated"] >= 8 * 256 * 256  # two moments, in float32
    assert found["largest_batch_unknown"] == {"why": "not measured", "problem": ""}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SIGKILL", "; the system does that when memory runs out, so this machine may be too small for this plan"),
        ("SIGSEGV", "; native code of a library crashed"),
    ],
)
def test_a_script_that_is_ended_by_a_signal(name: str, hint: str, tmp_path: Path) -> None:
    """One line names the signal, although a step was measured before."""
    text = training(extra=f"import signal; step and os.kill(os.getpid(), signal.{name})")
    result = plan("--mac", "M1 8GB", script(tmp_path, text), cwd=tmp_path)
    line = f"anymps: the script stopped: its process was ended by {name}{hint}"
    assert (result.status, result.out, result.err.splitlines()) == (2, "", [line])


def test_a_time_limit_that_is_reached_is_told(tmp_path: Path) -> None:
    """What was measured until then is shown as that."""
    sleeps = training(extra=f"step and (open({REACHED!r}, 'w').close() or time.sleep(600))")
    options = ("--report", "json=plan.json", "--mac", "M1 8GB")
    result = limited_plan(tmp_path, 30, *options, script(tmp_path, sleeps))
    assert result.status == 0, result.err
    found = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert (found["steps"], found["ended_after"]) == (1, 30.0)
    assert found["largest_batch_unknown"] == {"why": "late", "problem": ""}


GENERATES = """
import torch
from torch import nn
net = nn.Sequential(nn.Embedding(64, 64), nn.Linear(64, 64)).to("mps").eval()
ids = torch.zeros(1, 4, dtype=torch.long, device="mps")
with torch.inference_mode():
    for _ in range(100_000):
        ids = torch.cat((ids, net(ids)[:, -1].argmax(1, keepdim=True)), 1)
"""


def test_a_generation_ends_after_its_steps(tmp_path: Path) -> None:
    """Token by token, with other shapes each time; its time is that of whole rounds."""
    result = plan("--steps", "4", "--mac", "M1 8GB", script(tmp_path, GENERATES), cwd=tmp_path)
    assert (result.status, result.err) == (0, "")
    text = " ".join(result.out.split())
    assert (
        "4 steps measured on shapes). The measurement stopped after 4 rounds of the loop at train.py:8. Their" in text
    )
    assert "bound by M1 8GB fits" in text


def test_a_script_that_is_deaf_to_the_limit_is_told_of(tmp_path: Path) -> None:
    """It is killed; the batch of its first step is known."""
    deaf = training(extra=f"step and (open({REACHED!r}, 'w').close() or time.sleep(600))")
    text = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{deaf}"
    options = ("--report", "json=plan.json", "--mac", "M1 8GB", "--no-larger")
    result = limited_plan(tmp_path, 30, *options, script(tmp_path, text))
    assert result.status == 0, result.err
    found = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert (found["steps"], found["batch"], found["ended_after"]) == (1, 8, 30.0)


def test_a_script_that_halves_its_batch_is_tried_within_the_macs_memory(tmp_path: Path) -> None:
    """It fails as written, and goes on with the batch that it comes to."""
    found = planned(tmp_path, "--mac", "M1 8GB", "--no-larger", script(tmp_path, RETRIES))
    (mac,) = found["macs"]
    assert mac["verdict"] == "fails"
    assert mac["recovery"] == {"steps": 2, "batch": 2048}


def test_modules_of_pythonpath_are_found(tmp_path: Path) -> None:
    """What the variable names first is there for the script, too."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "settings_of_mine.py").write_text("size = 3", encoding="utf-8")
    name = script(tmp_path, "import settings_of_mine\n" + training())
    env = {"PYTHONPATH": f"{tmp_path / 'mine'}:{clean_environment()['PYTHONPATH']}"}
    options = ("--mac", "M1 8GB", "--no-larger")
    result = run_command("-m", "anymps", "plan", *options, name, cwd=tmp_path, env=env)
    assert result.status == 0, result.err


def test_a_measurement_that_cannot_be_written(tmp_path: Path) -> None:
    """A disk that is full ends the plan in one line: half of a measurement would say that everything fits."""
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))"
    result = plan("--mac", "M1 8GB", "--no-larger", script(tmp_path, training(extra=full)), cwd=tmp_path)
    said = re.sub(r"/\S+/recording", "RECORDING", result.err.splitlines()[-1])
    assert (result.status, said) == (
        2,
        "anymps: cannot save the measurement: RECORDING cannot be written: disk I/O error; "
        "set TMPDIR to another folder",
    )
