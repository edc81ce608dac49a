"""Whole runs on the `cuda` substrate: recordings like the host's, ranks, pytest, fixes, and a GPU that is full."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.sides import MAC, PATIENCE, SIDE, environment
from processes import Result, run_command

TRAIN = """
import torch
from gpu.models import SMALL, make_step

make, sizes = SMALL["GPT"]
step = make_step(make, "mps", *sizes, dropout=0.1, foreach=False)
total = torch.zeros((), device="mps")
for number in range(100):
    loss = step()
    total += loss
    if number % 10 == 0:
        print(f"{loss.item():.6f}")
    torch.linalg.svdvals(torch.ones(3, 3, device="mps"))
kept = torch.empty(3, device="mps", dtype=torch.float16)
kept.copy_(torch.tensor([1.0, 2.0, 3.0]), non_blocking=True)
print(f"{float(total):.5f}", torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory())
"""

RANKS = """
import os
import torch
import torch.distributed as dist
from gpu.models import SMALL, make_step, gpt

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model, loss_of, (tokens, targets) = gpt("mps", 64, 32, 4, 2)
half = slice(2 * rank, 2 * rank + 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(4):
    loss = loss_of(model, (tokens[half], targets[half]))
    loss.backward()
    for parameter in model.parameters():
        mean = parameter.grad.cpu()
        dist.all_reduce(mean)
        parameter.grad.copy_(mean / dist.get_world_size())
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
both = torch.tensor(losses)
dist.all_reduce(both)
if rank == 0:
    print("losses", " ".join(f"{it / 2:.5f}" for it in both.tolist()), flush=True)
dist.destroy_process_group()
"""

SPAWNED = """
import torch
import torch.multiprocessing as mp

def work(number):
    x = torch.arange(6.0, device="mps") * number
    print("sum", number, float(x.sum()), flush=True)

if __name__ == "__main__":
    mp.spawn(work, nprocs=3)
"""

THREADS = """
import threading
import torch
from torch.nn import functional

good, classes = torch.arange(50) % 7, 7
ids = good.to("mps")
table, scores = (torch.randn(*size, device="mps") for size in ((classes, 16), (50, classes)))
rows = torch.ones(50, 16, device="mps")
ended, told = threading.Event(), []

def late(wait):
    try:
        wait()
    except torch.AcceleratorError as error:
        told.append(str(error))

def write():
    while not ended.is_set():
        ids.fill_(1 << 40)
        late(lambda: ids.copy_(good))

writer = threading.Thread(target=write, daemon=True)
writer.start()
for number in range(1000):
    functional.embedding(ids, table)
    torch.ops.aten.embedding_dense_backward(rows, ids, classes, -1, False)
    functional.cross_entropy(scores, ids)
    table.gather(0, ids[:, None].expand(50, 16))
    if number % 20 == 0:
        late(torch.mps.synchronize)
ended.set()
writer.join()
late(torch.mps.synchronize)
print(bool(told), all("out of bounds" in it for it in told), float(torch.ones(3, device="mps").sum()))
"""

WAITS = """
import ctypes
import torch

driver = ctypes.CDLL("libcuda.so.1")
x, event = torch.randn(8192, 8192, device="mps"), torch.mps.Event(enable_timing=True)
waits = {
    "synchronize": torch.mps.synchronize,
    "accelerator": torch.accelerator.synchronize,
    "event": event.synchronize,
    "cache": torch.mps.empty_cache,
}
x @ x
for name, wait in waits.items():
    torch.mps.synchronize()
    for _ in range(20):
        x @ x
    event.record()
    before = driver.cuStreamQuery(None)
    wait()
    print(name, before, driver.cuStreamQuery(None))
"""

SUITE = """
import pytest
import torch

@pytest.mark.parametrize("number", range(12))
def test_it(number):
    x = torch.full((4,), float(number), device="mps")
    assert float(x.sum()) == 4 * number
"""


on_a_gpu = pytest.mark.skipif(SIDE != "cuda", reason="asks for what a GPU does, or for what its substrate refuses")


def anymps(side: str, *words: str, cwd: Path, **more: str) -> Result:
    """A command of anymps on a substrate."""
    return run_command("-m", "anymps", *words, cwd=cwd, env={**environment(side), **more}, timeout=PATIENCE)


def report(path: Path, side: str) -> Any:
    """A recording as JSON."""
    ended = anymps(side, "report", "--format", "json", path.name, cwd=path.parent)
    assert ended.status == 0, ended.err
    return json.loads(ended.out)


@on_a_gpu
def test_no_index_that_another_thread_writes_stops_the_gpu(tmp_path: Path) -> None:
    """Bad numbers come and go between calls that take them as indices: the Mac's late error is all that comes of it."""
    (tmp_path / "threads.py").write_text(THREADS)
    ended = anymps(SIDE, "run", "--mac", MAC, "threads.py", cwd=tmp_path)
    assert (ended.status, ended.out) == (0, "True True 3.0\n"), ended.err


@on_a_gpu
def test_who_waits_for_the_device_waits_for_the_gpu(tmp_path: Path) -> None:
    """Though nothing is read there: a clock that is read before and after has the GPU's time between."""
    (tmp_path / "waits.py").write_text(WAITS)
    ended = anymps(SIDE, "run", "--mac", MAC, "waits.py", cwd=tmp_path)
    busy = 600  # CUDA_ERROR_NOT_READY
    assert ended.out.splitlines() == [
        f"{name} {busy} 0" for name in ("synchronize", "accelerator", "event", "cache")
    ], ended.err


@pytest.fixture(scope="module")
def hundred_steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[str], Any]]:
    """What a training printed and what its report says, on each substrate."""
    found = {}
    for side in ("host", SIDE):
        folder = tmp_path_factory.mktemp(side)
        (folder / "train.py").write_text(TRAIN)
        ended = anymps(side, "run", "--mac", MAC, "--fallback", "--record", "run.anymps", "train.py", cwd=folder)
        assert ended.status == 0, ended.err
        found[side] = ended.out.splitlines(), report(folder / "run.anymps", side)
    return found


def test_losses_of_a_hundred_steps(hundred_steps: dict[str, tuple[list[str], Any]]) -> None:
    """Within two parts in a thousand: sums of two orders, a hundred times."""
    (host, _), (gpu, _) = hundred_steps["host"], hundred_steps[SIDE]
    numbers = [[float(line.split()[0]) for line in lines] for lines in (host, gpu)]
    assert numbers[1] == pytest.approx(numbers[0], rel=2e-3)
    assert host[-1].split()[1:] == gpu[-1].split()[1:]  # the allocator's counters


def test_findings_of_a_hundred_steps(hundred_steps: dict[str, tuple[list[str], Any]]) -> None:
    """The same rules at the same lines as often."""
    both = [
        sorted((finding["id"], finding["site"]["line"], finding["count"]) for finding in report["findings"])
        for _, report in (hundred_steps["host"], hundred_steps[SIDE])
    ]
    assert both[0]
    assert both[1] == both[0]


@pytest.mark.parametrize(
    "name", ["operators", "waits", "fallbacks", "refusals", "memory_peak", "calls", "complete_steps", "lines"]
)
def test_report_of_a_hundred_steps(hundred_steps: dict[str, tuple[list[str], Any]], name: str) -> None:
    """The same calls with the same fates, waits, steps and memory; times apart."""
    host, gpu = (plain(report[name]) for _, report in (hundred_steps["host"], hundred_steps[SIDE]))
    assert gpu == host


def plain(value: Any) -> Any:
    """Without times, folders, and the order of rows, which is that of times."""
    if isinstance(value, dict):
        kept = {key: plain(part) for key, part in value.items() if not re.search(r"_ns$|seconds|cost|queue", key)}
        return {key: Path(part).name if key == "file" and part else part for key, part in kept.items()}
    if isinstance(value, list):
        return sorted((plain(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def test_ranks_that_share_a_gpu(tmp_path: Path) -> None:
    """Two ranks over gloo, gradients averaged on the CPU: losses as on the host, one joined recording."""
    (tmp_path / "ranks.py").write_text(RANKS)
    told = {}
    for side in ("host", SIDE):
        words = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "ranks.py")
        ended = anymps(side, "run", "--record", f"{side}.anymps", *words, cwd=tmp_path, ANYMPS_GPUS="8")
        assert ended.status == 0, ended.err
        (line,) = (line for line in ended.out.splitlines() if line.startswith("losses"))
        told[side] = [float(word) for word in line.split()[1:]]
        parts = report(tmp_path / f"{side}.anymps", side)["run"]["parts"]
        assert [part["name"] for part in parts if part["name"].startswith("rank")] == ["rank 0", "rank 1"]
        if side == "cuda":
            assert all(part["card"].startswith("cuda:") for part in parts if part["name"].startswith("rank"))
    assert told[SIDE] == pytest.approx(told["host"], rel=1e-4)


def test_processes_of_spawn(tmp_path: Path) -> None:
    """Each is a Mac of its own on the GPU."""
    (tmp_path / "spawned.py").write_text(SPAWNED)
    ended = anymps(SIDE, "run", "spawned.py", cwd=tmp_path, ANYMPS_GPUS="2")
    assert sorted(line for line in ended.out.splitlines() if line.startswith("sum")) == [
        "sum 0 0.0", "sum 1 15.0", "sum 2 30.0",
    ]  # fmt: skip


def test_pytest_with_workers(tmp_path: Path) -> None:
    """`pytest --mps -n 3`: three Macs on the GPUs that there are."""
    (tmp_path / "test_it.py").write_text(SUITE)
    words = ("-m", "pytest", "-p", "xdist.plugin", "-p", "anymps.pytest_plugin", "--mps", "-n", "3", "-q", "test_it.py")
    named = {**environment(SIDE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = run_command(*words, cwd=tmp_path, env=named, timeout=PATIENCE)
    assert ended.status == 0, ended.out + ended.err
    assert "12 passed" in ended.out


def test_a_script_for_cuda(tmp_path: Path) -> None:
    """`--cuda-as-mps`: the script runs on the GPU, and its lines are found."""
    (tmp_path / "port.py").write_text(
        "import torch\nmodel = torch.nn.Linear(8, 2).cuda()\nx = torch.randn(4, 8, device='cuda')\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(3):\n"
        "    loss = model(x).square().mean()\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "torch.cuda.synchronize()\nprint(x.device, torch.cuda.is_available(), round(loss.item(), 9) > 0)\n"
    )
    words = ("run", "--cuda-as-mps", "--record", "run.anymps", "port.py")
    ended = anymps(SIDE, *words, cwd=tmp_path)
    assert (ended.status, ended.out) == (0, "mps:0 True True\n"), ended.err
    assert "MPS409" in {finding["id"] for finding in report(tmp_path / "run.anymps", SIDE)["findings"]}


def test_a_fix_is_checked(tmp_path: Path) -> None:
    """`anymps fix` runs the script before and after the change on the GPU."""
    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(30)]).to('mps')\n"
        "x = torch.randn(4, 8).to('mps')\noptimizer = torch.optim.AdamW(model.parameters())\n"
        "total = 0.0\nfor _ in range(20):\n"
        "    loss = model(x).square().mean()\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "    total += loss.item()\nprint(float(total))\n"
    )
    ended = anymps(SIDE, "fix", "train.py", cwd=tmp_path)
    assert ended.status == 0, ended.err
    assert "  on mps, 20 losses" in ended.err
    assert re.search(r"^anymps: \d+ changes?: ", ended.err, re.M), ended.err


@on_a_gpu
def test_a_full_gpu(tmp_path: Path) -> None:
    """Of a Mac with more memory than the GPU, one line says whose limit it was."""
    (tmp_path / "fill.py").write_text("import torch\nx = torch.empty(300 << 30, dtype=torch.uint8, device='mps')\n")
    ended = anymps(SIDE, "run", "--mac", "M3 Ultra 512GB", "fill.py", cwd=tmp_path)
    (line,) = (line for line in ended.err.splitlines() if "the NVIDIA GPU is full" in line)
    assert "anymps: the NVIDIA GPU is full (cuda:0 of this machine), not the Mac, whose limit comes later: " in line
    assert "fill.py" in ended.err
    assert "line 2" in ended.err


@pytest.mark.parametrize(
    "call",
    [
        'torch.mps.compile_shader("kernel void f(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) '
        '{ x[i] = 1; }").f(torch.zeros(4, device="mps"))',
        'torch.compile(lambda x: x * 2 + 1)(torch.ones(4, device="mps"))',
    ],
)
@on_a_gpu
def test_what_is_refused_is_one_line(tmp_path: Path, call: str) -> None:
    """Metal kernels run on this machine's CPU, and the tensors are not there."""
    (tmp_path / "it.py").write_text(f"import torch\ntry:\n    {call}\nexcept Exception as error:\n    print(error)\n")
    ended = anymps(SIDE, "run", "it.py", cwd=tmp_path)
    assert (
        "anymps: Metal shaders (torch.compile writes them, too) run on this machine's CPU, which cannot reach "
        "tensors on the NVIDIA GPU: use --substrate host"
    ) in ended.out


@on_a_gpu
def test_real_kernels_are_refused(tmp_path: Path) -> None:
    """They run on the CPU."""
    (tmp_path / "it.py").write_text("print('ran')\n")
    ended = anymps(SIDE, "run", "--kernels", "real", "it.py", cwd=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        "anymps: real kernels and substrate='cuda' can't be combined: these kernels run on this machine's CPU\n"
    )


@on_a_gpu
def test_the_banner_names_the_gpu(tmp_path: Path) -> None:
    """With its number and name."""
    (tmp_path / "it.py").write_text("import torch\ntorch.ones(2, device='mps')\n")
    ended = anymps(SIDE, "run", "--mac", MAC, "it.py", cwd=tmp_path)
    assert re.search(r"^anymps: VIRTUAL mps device: .*computed on .*NVIDIA GPU.* \(cuda:0, NVIDIA .*\)", ended.err), (
        ended.err
    )


def test_doctor(tmp_path: Path) -> None:
    """It says that a GPU can be had, and which."""
    ended = anymps(SIDE, "doctor", cwd=tmp_path)
    if SIDE == "cuda":
        assert re.search(r"^NVIDIA GPU +cuda:0, NVIDIA .* GiB", ended.out, re.M), ended.out
    assert sys.version_info[:2] >= (3, 10)
