"""`anymps plan` on real scripts, in real processes: verdicts, batches, memory, and scripts that cannot be planned."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.plan_runs import TRAINING, plan, planned, script
from processes import run_command, run_python
from time_limits import REACHED, limited_plan

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One plan with several what-ifs."""
    folder = tmp_path_factory.mktemp("plan")
    changes = ("checkpoint", "sgd", "fused", "batch=4096")
    options = [word for change in changes for word in ("--what-if", change)]
    # Three whole batches of twice the size.
    return planned(folder, *options, script(folder, TRAINING.replace("20000", "70000")))


def test_a_module_of_several_processes(tmp_path: Path) -> None:
    """It is found from the current folder, and with --alone runs as one process, without NCCL."""
    package = tmp_path / "jobs"
    package.mkdir()
    (package / "__init__.py").touch()
    group = 'import torch\ntorch.distributed.init_process_group("nccl")\n'
    (package / "train.py").write_text(group + TRAINING)
    found = planned(tmp_path, "--mac", "M1 8GB", "--no-larger", "--cuda-as-mps", "--alone", "-m", "jobs.train")
    assert (found["steps"], [mac["verdict"] for mac in found["macs"]]) == (3, ["fits"])


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


def test_a_step_has_a_time_on_every_chip(whole: dict[str, Any]) -> None:
    """All of its calls can be predicted, also those whose results Python made; a larger chip is not slower."""
    times = {one["mac"]: one for one in whole["times"] if one["seconds"] is not None}
    assert len(times) >= 15
    assert all(one["left_out"] == [] for one in times.values())
    assert all(one["seconds_low"] < one["seconds"] < one["seconds_high"] for one in times.values())
    by_chip = {one["chip"]: one for one in times.values()}
    assert by_chip["Apple M4 Max"]["seconds"] < by_chip["Apple M1 Max"]["seconds"]


def test_the_batch_of_an_option_is_the_one_that_is_told(tmp_path: Path) -> None:
    """With --batch, samples a second and every sentence are of that batch, not of the loader's own."""
    found = planned(tmp_path, "--mac", "M1 8GB", "--no-larger", "--batch", "4096", script(tmp_path, TRAINING))
    assert found["batch"] == 4096
    (mac,) = found["times"]
    assert mac["samples_per_second"] == pytest.approx(4096 / mac["seconds"], rel=0.01)


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


INFOGAN = """
import itertools, torch
from torch import nn
G, D = nn.Linear(16, 64).to("mps"), nn.Linear(64, 8).to("mps")
optimizers = [torch.optim.Adam(list(chosen), lr=1e-3) for chosen in (
    G.parameters(), D.parameters(), itertools.chain(G.parameters(), D.parameters()))]
for step in range(20):
    for optimizer in optimizers:
        optimizer.zero_grad()
        D(G(torch.randn(8, 16, device="mps"))).square().mean().backward()
        optimizer.step()
    if step % 400 == 0:
        sample = torch.randn(1 << 16, 16, device="mps")
        for _ in range(100):
            G(sample)
"""


def test_optimizers_of_shared_modules_make_a_step_together(tmp_path: Path) -> None:
    """A plan holds three whole rounds, so that the samples of the first one are in no typical step, and none leaks."""
    found = planned(tmp_path, "--mac", "M1 8GB", "--no-larger", script(tmp_path, INFOGAN))
    (time,) = found["times"]
    assert (found["steps"], found["first_fixes"]) == (3, [])
    assert time["seconds"] < 0.02  # the samples alone take 50 ms


@pytest.mark.slow
def test_a_mac_that_fails_shows_torchs_text_and_the_place(tmp_path: Path) -> None:
    """The batch is put for {batch}; the verdict for one Mac is the first line."""
    result = plan("-v", "--mac", "M1 8GB", "--batch", "65536", script(tmp_path, TRAINING), "{batch}", cwd=tmp_path)
    assert (result.status, result.err) == (0, "")
    assert result.lines[0].startswith("On M1 8GB")
    assert result.lines[0].endswith(": fails.")
    assert result.lines[1].startswith("MPS backend out of memory (MPS allocated: ")
    assert "fails in step 1, forward" in result.out
    assert "{batch}, batch 65536: at its peak" in " ".join(result.lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import torch\nx = torch.ones(3)\n",
            "anymps: the script made nothing on mps; it must choose the device itself",
        ),
        (
            "import torch\nx = torch.ones(3, device='mps')\nraise ValueError('no data')\n",
            "anymps: the script stopped in a shapes-only run at train.py:3: ValueError: no data",
        ),
        (
            "import torch\nx = torch.ones(3, dtype=torch.float64, device='mps')\n",
            "anymps: the script stopped in a shapes-only run at train.py:2: TypeError: Cannot convert a MPS Tensor to "
            "float64 dtype as the MPS framework doesn't support float64. Please use float32 instead. (a Mac raises "
            "this too)",
        ),
        (
            "import torch\nx = torch.randn(600, 600, device='mps')\n\nprint([1][:0][int(x.sum().item())])\n",
            "anymps: the script stopped in a shapes-only run at train.py:4: IndexError: list index out of range; it "
            "read a value that a plan does not have (train.py:4), so the script may not be at fault: plan the part "
            "that does not need it",
        ),
        ("import sys\nsys.exit(3)\n", "anymps: the script stopped in a shapes-only run: exit status 3"),
        (
            "import sys\nsys.exit('no data')\n",
            "anymps: the script stopped in a shapes-only run: exit status 1; it last printed: no data",
        ),
        (
            "import torch\nx = torch.ones(3, device='mps').cuda()\n",
            "anymps: the script stopped in a shapes-only run at train.py:2: AssertionError: Torch not compiled with "
            "CUDA enabled (a Mac raises this too: anymps fix ports the script, and --cuda-as-mps plans it as it is)",
        ),
        (
            "import torch\nx = torch.ones(3, 4, device='mps')\n\ny = x @ torch.ones(5, 6, device='mps')\n",
            "anymps: the script stopped in a shapes-only run at train.py:4: RuntimeError: mat1 and mat2 shapes cannot "
            "be multiplied (3x4 and 5x6) (of aten::mm; a Mac stops there too, perhaps with another message)",
        ),
        (
            "import torch\nx = torch.ones(3, device='mps')\ntry:\n    x.double()\nexcept TypeError:\n    pass\n"
            "raise ValueError('no data')\n",
            "anymps: the script stopped in a shapes-only run at train.py:7: ValueError: no data",
        ),
        (
            "import torch, urllib.request\nx = torch.ones(3, device='mps')\n"
            "raise urllib.request.URLError('Name or service not known')\n",
            "anymps: the script needs the network at train.py:3, but a plan downloads nothing: URLError: <urlopen "
            "error Name or service not known>; run it once with a network, or use files on this machine",
        ),
    ],
    ids=[
        "no mps",
        "fails",
        "refused",
        "needs values",
        "exits",
        "exits with words",
        "CUDA",
        "shapes",
        "refused before",
        "network",
    ],
)
def test_a_script_that_cannot_be_planned_gets_one_line(text: str, message: str, tmp_path: Path) -> None:
    """Exit code 2, nothing on standard output, and what to do."""
    result = plan("--mac", "M1 8GB", script(tmp_path, text), cwd=tmp_path)
    assert (result.status, result.out, result.err.splitlines()) == (2, "", [message])


GPT = str(Path(__file__).with_name("gpt_memory.py"))


@pytest.mark.slow
def test_a_gpt_known_to_fail_on_24_gb_fails(tmp_path: Path) -> None:
    """Depth 12, batch 8 and length 2048 meet torch's limit when another block of logits, 2 GiB, is asked for.

    The real run had 29.38 GiB in heaps by then (docs/evidence.md).
    """
    found = planned(tmp_path, "--mac", "M2 24GB", GPT, "12", "8", "2048")
    (mac,) = found["macs"]
    assert mac["verdict"] == "fails"
    assert mac["fails_in"]["step"] == 0
    asked = re.search(r"\(MPS allocated: ([0-9.]+) GiB,.*Tried to allocate ([0-9.]+) GiB", mac["message"])
    assert asked is not None
    assert asked[2] == "2.00"
    assert float(asked[1]) == pytest.approx(29.38, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "batch", "verdicts", "asked"),
    [
        (12, 8, ("fits", "tight", "pages"), None),
        (10, 8, ("fits", "tight"), None),
        (10, 12, ("pages",), None),
        (10, 16, ("pages",), None),
        (10, 24, ("fails",), "6.00"),
    ],
    ids=["d12 b8", "d10 b8", "d10 b12", "d10 b16", "d10 b24"],
)
def test_gpts_with_checkpointing_end_as_they_do_on_a_mac(
    depth: int, batch: int, verdicts: tuple[str, ...], asked: str | None, tmp_path: Path
) -> None:
    """On an M2 24GB batches of 8 run, those of 12 and 16 page, and 24 fails, asking for 6 GiB (docs/evidence.md)."""
    found = planned(tmp_path, "--mac", "M2 24GB", GPT, str(depth), str(batch), "2048", "checkpoint")
    (mac,) = found["macs"]
    assert mac["verdict"] in verdicts
    tried = re.search(r"Tried to allocate ([0-9.]+) GiB", mac["message"])
    assert (tried[1] if tried else None) == asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "column", "public"),
    [(("8", "4", "512"), 1, 1412e6), (("6", "32", "512"), 0, 1499.78 * 2**20)],
    ids=["after a step, without gradients", "after a step, with them"],
)
def test_memory_between_steps_is_that_of_a_mac(arguments: tuple[str, ...], column: int, public: float) -> None:
    """What torch.mps.current_allocated_memory told on an M4 Max, within a tenth (docs/evidence.md)."""
    code = (
        "import runpy, sys\nfrom anymps.device import enable\n"
        "enable('M4 Max 128GB', require='virtual', substrate='shape', quiet=True)\n"
        "from anymps.plan.inside._hollow import Hollow\n"
        f"sys.argv = {[GPT, *arguments, 'show']!r}\nwith Hollow():\n    runpy.run_path({GPT!r}, run_name='__main__')\n"
    )
    steps = [[int(word) for word in line.split()] for line in run_python(code).lines]
    assert len(steps) == 3
    assert max(step[column] for step in steps) == pytest.approx(public, rel=0.1)


@pytest.mark.slow
def test_a_model_that_must_be_downloaded_ends_the_plan(tmp_path: Path) -> None:
    """Where transformers finds no model in its cache, one line says so, whether there is a network or not."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    text = "from transformers import AutoModel\nAutoModel.from_pretrained('some-people/some-model').to('mps')\n"
    result = plan("--mac", "M1 8GB", script(tmp_path, text), cwd=tmp_path)
    assert (result.status, result.out, len(result.err.splitlines())) == (2, "", 1)
    needs = "anymps: the script needs the network at train.py:2, but a plan downloads nothing: OSError: "
    assert result.err.startswith(needs)
    assert result.err.endswith("; run it once with a network, or use files on this machine\n")


def test_a_page_is_written(tmp_path: Path) -> None:
    """One file, with the verdict first."""
    result = plan("--mac", "M1 8GB", "--report", "html=plan.html", script(tmp_path, TRAINING), cwd=tmp_path)
    assert (result.status, result.err) == (0, "anymps: report: plan.html\n")
    assert result.out.startswith("On M1 8GB: fits.\n")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "</span>On M1 8GB: fits.</h1>" in page


@pytest.mark.slow
def test_a_script_that_hangs_is_ended(tmp_path: Path) -> None:
    """After --seconds one line says so."""
    hangs = f"import time\nopen({REACHED!r}, 'w')\ntime.sleep(600)\n"
    result = limited_plan(tmp_path, 15, "--mac", "M1 8GB", script(tmp_path, hangs))
    assert (result.status, result.err.splitlines()) == (
        2,
        ["anymps: the script did nothing on mps within 15 s; it must choose the device itself"],
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux sends SIGKILL at a hard limit")
def test_a_limit_of_processor_time(tmp_path: Path) -> None:
    """It is named as what ended the script, which the system kills as it does where memory runs out."""
    name = script(tmp_path, "while True:\n    pass\n")
    start = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (12, 12)); "
        "os.execv(sys.executable, [sys.executable, '-m', 'anymps', 'plan', '--mac', 'M1 8GB', *sys.argv[1:]])"
    )
    result = run_command("-c", start, name, cwd=tmp_path)
    assert (result.status, result.err.splitlines()) == (
        2,
        [
            "anymps: the script stopped: its process was ended by SIGXCPU; it reached the limit of processor time, "
            "12 s (ulimit -t)"
        ],
    )
