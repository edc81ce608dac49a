"""`anymps plan` on real scripts, in real processes: verdicts, batches, what-ifs, and scripts that cannot be planned."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from processes import Result, clean_environment

pytestmark = pytest.mark.integration

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


def plan(*words: str, cwd: Path, timeout: float = 200) -> Result:
    """Runs the command as a user does."""
    env = {**clean_environment(), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "anymps", "plan", *words]
    answer = subprocess.run(command, check=False, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    return Result(answer.returncode, answer.stdout, answer.stderr)


def planned(cwd: Path, *words: str) -> dict[str, Any]:
    """The plan as JSON."""
    result = plan("--report-to", "plan.json", *words, cwd=cwd)
    assert (result.status, result.out, result.err) == (0, "", "")
    document: dict[str, Any] = json.loads((cwd / "plan.json").read_text(encoding="utf-8"))
    return document


def script(folder: Path, text: str) -> str:
    """A script in the folder."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    return "train.py"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One plan with several what-ifs."""
    folder = tmp_path_factory.mktemp("plan")
    changes = ("checkpoint", "sgd", "fused", "batch=4096")
    options = [word for change in changes for word in ("--what-if", change)]
    return planned(folder, *options, script(folder, TRAINING))


def test_every_memory_size_gets_a_verdict_and_a_batch(whole: dict[str, Any]) -> None:
    """More memory never fits less, and the batch of the data loader is found."""
    assert (whole["batch"], whole["steps"]) == (8192, 3)
    order = ["fails", "pages", "tight", "fits"]
    verdicts = [order.index(mac["verdict"]) for mac in whole["macs"]]
    assert verdicts == sorted(verdicts)
    assert verdicts[-1] == order.index("fits")
    batches = [mac["largest_batch"] for mac in whole["macs"]]
    assert batches == sorted(batches)
    for mac in whole["macs"]:
        assert (mac["largest_batch"] >= 8192) == (mac["verdict"] in ("fits", "tight"))


def test_the_peak_is_made_of_what_the_script_has(whole: dict[str, Any]) -> None:
    """Weights are 12 layers of 2048 times 2049 numbers; AdamW keeps twice as much."""
    weights = 12 * 2048 * 2049 * 4
    categories = whole["peak"]["categories"]
    assert categories["parameters"] == pytest.approx(weights, rel=0.01)
    assert categories["optimizer state"] == pytest.approx(2 * weights, rel=0.01)
    assert sum(categories.values()) == whole["peak"]["allocated"]
    assert Path(whole["peak"]["file"]).name == "train.py"


def test_what_ifs_change_what_they_should(whole: dict[str, Any]) -> None:
    """Recomputing and a smaller batch save activations, SGD saves the state, a fused step needs no more."""
    changes = {change["change"]: change for change in whole["what_if"]}
    peak = whole["peak"]["allocated"]
    assert not any(change["problem"] for change in changes.values())
    activations = whole["peak"]["categories"]["activations"]
    assert changes["activation checkpointing"]["peak_allocated"] < peak - 0.4 * activations
    state = whole["peak"]["categories"]["optimizer state"]
    assert changes["SGD"]["peak_allocated"] <= peak - 0.99 * state
    assert changes["fused optimizer"]["peak_allocated"] <= 1.001 * peak  # it keeps its step counters on the device
    # Half of the activations, less what is rounded up: gradients of weights take freed blocks of twice their size.
    assert changes["batch 4096"]["peak_allocated"] < peak - 0.2 * activations


def test_a_mac_that_fails_shows_torchs_text_and_the_place(tmp_path: Path) -> None:
    """The batch is put for {batch}; the verdict for one Mac is the first line."""
    result = plan("--mac", "M1 8GB", "--batch", "65536", script(tmp_path, TRAINING), "{batch}", cwd=tmp_path)
    assert (result.status, result.err) == (0, "")
    assert result.lines[0].startswith("On M1 8GB")
    assert result.lines[0].endswith(": fails.")
    assert result.lines[1].startswith("MPS backend out of memory (MPS allocated: ")
    assert "fails in step 1, forward" in result.out
    assert "{batch}, batch 65536: at its peak" in " ".join(result.lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import torch\nx = torch.ones(3)\n",
            "anymps: the script made nothing on mps; it must choose the device itself",
        ),
        (
            "import torch\nx = torch.ones(3, device='mps')\nraise ValueError('no data')\n",
            "anymps: the script stopped on shapes alone: ValueError no data",
        ),
        (
            "import torch\nx = torch.ones(3, dtype=torch.float64, device='mps')\n",
            "anymps: the script stopped on shapes alone: TypeError Cannot convert a MPS Tensor to float64 dtype as the "
            "MPS framework doesn't support float64. Please use float32 instead. (a Mac raises this, too: anymps run "
            "tells where)",
        ),
        (
            "import torch\nx = torch.randn(600, 600, device='mps')\n\nprint([1][:0][int(x.sum().item())])\n",
            "anymps: the script stopped on shapes alone: IndexError list index out of range; it read a value that a "
            "plan does not have (train.py:4), so this may be no fault of the script: plan the part without it",
        ),
        ("import sys\nsys.exit(3)\n", "anymps: the script stopped on shapes alone: exit status 3"),
    ],
    ids=["no mps", "fails", "refused", "needs values", "exits"],
)
def test_a_script_that_cannot_be_planned_gets_one_line(text: str, message: str, tmp_path: Path) -> None:
    """Exit code 2, nothing on standard output, and what to do."""
    result = plan("--mac", "M1 8GB", script(tmp_path, text), cwd=tmp_path)
    assert (result.status, result.out, result.err.splitlines()) == (2, "", [message])


def test_a_gpt_known_to_fail_on_24_gb_fails(tmp_path: Path) -> None:
    """A GPT of depth 12, batch 8 and length 2048 meets torch's limit when it asks for another block of logits, 2 GiB.

    docs/memory.md says what a real run showed, and how far this simpler model is from it.
    """
    model = str(Path(__file__).with_name("gpt_memory.py"))
    found = planned(tmp_path, "--mac", "M4 24GB", "--batch", "8", model, "{batch}", "2048")
    (mac,) = found["macs"]
    assert (mac["verdict"], mac["fails_in"]) == ("fails", {"step": 1, "phase": "backward"})
    asked = re.search(r"\(MPS allocated: ([0-9.]+) GiB,.*Tried to allocate ([0-9.]+) GiB", mac["message"])
    assert asked is not None
    assert asked[2] == "2.00"
    assert float(asked[1]) == pytest.approx(28.5, abs=0.1)


def test_a_plan_is_not_written_as_a_page(tmp_path: Path) -> None:
    """A file name that asks for what there is not is refused before anything is measured."""
    result = plan("--report-to", "plan.html", script(tmp_path, TRAINING), cwd=tmp_path, timeout=30)
    assert (result.status, result.err.splitlines()) == (
        2,
        ["anymps: --report-to plan.html: a plan is written as .json or as text"],
    )


def test_a_batch_in_the_arguments_must_be_given(tmp_path: Path) -> None:
    """{batch} stands for a number that the command line says."""
    result = plan(script(tmp_path, TRAINING), "{batch}", cwd=tmp_path)
    assert (result.status, result.err.splitlines()) == (
        2,
        ["anymps: the arguments hold {batch}: say what it is, with --what-if or --batch"],
    )


def alive(number: int) -> bool:
    """Whether a process runs (one that is dead and unburied does not)."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{number}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


HANGS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("pids.part", "w").write(f"{os.getpid()} {child.pid}")
os.rename("pids.part", "pids")
while True:
    time.sleep(0.1)
"""


def test_a_script_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """After --seconds one line says so, and no process is left."""
    result = plan("--mac", "M1 8GB", "--seconds", "15", script(tmp_path, HANGS), cwd=tmp_path)
    assert (result.status, result.err.splitlines()) == (
        2,
        ["anymps: the script did nothing on mps within 15 s; it must choose the device itself"],
    )
    assert not any(alive(int(number)) for number in (tmp_path / "pids").read_text().split())


def test_a_killed_plan_leaves_no_process(tmp_path: Path) -> None:
    """Even where the plan itself is killed, what it started ends."""
    name = script(tmp_path, HANGS)
    process = subprocess.Popen(
        [sys.executable, "-m", "anymps", "plan", "--mac", "M1 8GB", name],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until(lambda: (tmp_path / "pids").exists() or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    started = [int(number) for number in (tmp_path / "pids").read_text().split()]
    _wait_until(lambda: not any(map(alive, started)))


def _wait_until(condition: Any) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")
