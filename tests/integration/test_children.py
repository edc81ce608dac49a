"""Processes that a script starts anew under `anymps run`: they have the device, and one recording holds all of them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import torch

from anymps.record import Recording
from processes import FLUSHED, PATIENCE, Result, run_anymps

pytestmark = pytest.mark.integration

RUN = ("run", "--mac", "M1 8GB", "--record", "all.anymps")
CHILD = """
import torch
total = torch.ones(3, device="mps") + 1
print(torch.backends.mps.get_name(), total.sum().item())
"""

SUBPROCESS = """
import subprocess, sys, torch
torch.ones(2, device="mps")
subprocess.run([sys.executable, "job/child.py"], check=True)
"""

MULTIPROCESSING = """
import multiprocessing, torch

def work(number):
    return torch.full((2,), float(number), device="mps").sum().item()

if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map(work, [3]))
"""


def run(folder: Path, script: str, *words: str, options: tuple[str, ...] = ()) -> Result:
    """Runs a script by `anymps run` on an M1 with 8 GB, beside `child.py`; the recording is `all.anymps`."""
    (folder / "job").mkdir()
    (folder / "job" / "train.py").write_text(script, encoding="utf-8")
    (folder / "job" / "child.py").write_text(CHILD, encoding="utf-8")
    return run_anymps(*RUN, *options, "job/train.py", *words, cwd=folder)


def parts(folder: Path) -> list[tuple[str, bool]]:
    """The names of the processes in the recording, and whether each is whole."""
    with Recording.open(folder / "all.anymps") as recording:
        return [(part.name, part.complete) for part in recording.parts]


def lines(folder: Path) -> dict[str, int]:
    """Calls on mps by `file:line`."""
    with Recording.open(folder / "all.anymps") as recording:
        return {f"{Path(line.file).name}:{line.line}": line.on_mps for line in recording.lines() if line.on_mps}


def test_a_subprocess_has_the_device_and_is_in_the_recording(tmp_path: Path) -> None:
    """It plays its parent's Mac without a word, and its lines stand beside the parent's."""
    result = run(tmp_path, SUBPROCESS)
    assert result.lines == ["Apple M1 6.0"]
    assert result.err.count("VIRTUAL") == 1
    assert parts(tmp_path) == [("main process", True), ("process 2", True)]
    assert sorted(lines(tmp_path)) == ["child.py:3", "child.py:4", "train.py:3"]
    with Recording.open(tmp_path / "all.anymps") as recording:
        assert (recording.meta["script"], recording.meta["environment"]) == ("job/train.py", {})


@pytest.mark.slow
def test_forkserver(tmp_path: Path) -> None:
    """A pool's worker is recorded although it ends by `os._exit`."""
    result = run(tmp_path, MULTIPROCESSING)
    assert result.lines == ["[6.0]"]
    assert parts(tmp_path) == [("main process", True), ("process 2", True)]
    assert list(lines(tmp_path)) == ["train.py:5"]


def test_children_can_be_left_alone(tmp_path: Path) -> None:
    """With `--no-children` a subprocess has what this machine has, which is no mps."""
    result = run(tmp_path, SUBPROCESS.replace(", check=True", ""), options=("--no-children",))
    assert result.status == 0
    assert "child.py" in result.err
    assert parts(tmp_path) == []
    assert list(lines(tmp_path)) == ["train.py:3"]


@pytest.mark.slow
def test_a_process_that_outlives_its_parent(tmp_path: Path) -> None:
    """What it has done so far is in; one line says where the rest is, and that can be read."""
    lasting = (
        CHILD + FLUSHED + "import os, pathlib\n"
        "pathlib.Path('here.tmp').write_text(str(os.getpid()))\n"
        "os.rename('here.tmp', 'here')\n"
        "while not os.path.exists('end'):\n"
        "    time.sleep(0.1)\n"
        "torch.ones(4, device='mps')\n"
    )
    script = (
        f"import os, pathlib, time\npathlib.Path('job/child.py').write_text({lasting!r})\n"
        + SUBPROCESS.replace("subprocess.run", "subprocess.Popen").replace(", check=True", ", stdout=-3, stderr=-3")
        + "while not os.path.exists('here'):\n    time.sleep(0.1)\n"
    )
    result = run(tmp_path, script)
    ident = int((tmp_path / "here").read_text())
    said = f"anymps: child process {ident} is still running: the rest of its recording is only in "
    (line,) = (row for row in result.err.splitlines() if row.startswith(said))
    part = Path(line.removeprefix(said))
    try:
        assert parts(tmp_path) == [("main process", True), ("process 2", False)]
        (tmp_path / "end").touch()
        until = time.monotonic() + PATIENCE
        while part.exists() and time.monotonic() < until:
            time.sleep(0.1)
        with Recording.open(part.with_suffix(".anymps")) as recording:
            assert recording.complete
            assert any(Path(recorded.file).name == "child.py" and recorded.line == 16 for recorded in recording.lines())
    finally:
        shutil.rmtree(part.parent)


@pytest.mark.slow
def test_a_part_that_is_cut_short(tmp_path: Path) -> None:
    """One line says that it is not in and where it is; the script's own recording is."""
    script = (
        SUBPROCESS
        + """
import os, pathlib
(part,) = pathlib.Path(os.environ["ANYMPS_CHILDREN"]).glob("*.anymps")
part.write_bytes(part.read_bytes()[:5000])
"""
    )
    result = run(tmp_path, script)
    said = "anymps: the recording of a child process is missing: "
    (line,) = (row for row in result.err.splitlines() if row.startswith(said))
    part = Path(line.removeprefix(said).partition(" is damaged (")[0])
    assert part.exists()
    shutil.rmtree(part.parent)
    assert list(lines(tmp_path)) == ["train.py:3"]


@pytest.mark.slow
def test_a_command_of_ours_in_a_child_is_on_its_own(tmp_path: Path) -> None:
    """`anymps run` within `anymps run` has its own Mac and its own recording."""
    inner = '[sys.executable, "-m", "anymps", "run", "--mac", "M2 8GB", "job/child.py"]'
    result = run(tmp_path, SUBPROCESS.replace('[sys.executable, "job/child.py"]', inner))
    assert result.lines == ["Apple M2 6.0"]
    assert list(lines(tmp_path)) == ["train.py:3"]


@pytest.mark.slow
def test_pytest_in_a_child(tmp_path: Path) -> None:
    """A plain pytest is recorded like any other process; `pytest --mps` is on its own."""
    words = '[sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "job/test_it.py", *sys.argv[1:]]'
    test = "import torch\ndef test_it():\n    assert torch.ones(2, device='mps').sum().item() == 2\n"
    script = f"import pathlib\npathlib.Path('job/test_it.py').write_text({test!r})\n" + SUBPROCESS.replace(
        '[sys.executable, "job/child.py"]', words
    )
    (tmp_path / "plain").mkdir()
    (tmp_path / "gate").mkdir()
    plain = run(tmp_path / "plain", script)
    assert plain.status == 0, plain.out + plain.err
    assert "test_it.py:3" in lines(tmp_path / "plain")
    gate = run(tmp_path / "gate", script, "--mps", "--mps-mac", "M2 8GB")
    assert gate.status == 0, gate.out + gate.err
    assert list(lines(tmp_path / "gate")) == ["train.py:5"]


RANKS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
numbers = torch.ones(2)
dist.all_reduce(numbers)
x = torch.ones(2, device="mps") * numbers.to("mps")
if rank == 1:
    x = x + 1
try:
    dist.all_reduce(x)
except NotImplementedError as error:
    print(str(error).partition(".")[0] + "\\n", end="", flush=True)
if not dist.is_nccl_available():
    try:
        dist.new_group(backend="nccl")
    except RuntimeError as error:
        print(f"{error}\\n", end="", flush=True)
dist.destroy_process_group()
"""


def test_torchrun(tmp_path: Path) -> None:
    """Each rank is recorded by its name; gloo takes CPU tensors, and says of others and of NCCL what a Mac says.

    A build of torch for CUDA keeps NCCL, as it keeps CUDA.
    """
    (tmp_path / "train.py").write_text(RANKS, encoding="utf-8")
    result = run_anymps(*RUN, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py", cwd=tmp_path)
    assert sorted(result.lines) == [
        *["Distributed package doesn't have NCCL built in"] * (0 if torch.distributed.is_nccl_available() else 2),
        *["The distributed operator 'c10d::allreduce_' is not currently implemented for the MPS device"] * 2,
    ]
    first, *ranks = [name for name, _ in parts(tmp_path)]
    assert (first, sorted(ranks)) == ("main process", ["rank 0", "rank 1"])
    assert lines(tmp_path) == {"train.py:9": 4, "train.py:11": 1}
    assert result.err.count("MPS104") == 1


SPAWNED = """
import torch
import torch.distributed as dist

def work(rank):
    dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=rank, world_size=2)
    torch.ones(2, device="mps").sum().item()

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=2)
"""


@pytest.mark.slow
def test_ranks_without_a_launcher(tmp_path: Path) -> None:
    """A process that joins a group has a rank while it is in the group."""
    result = run(tmp_path, SPAWNED)
    assert result.status == 0, result.err
    first, *ranks = [name for name, _ in parts(tmp_path)]
    assert (first, sorted(ranks)) == ("main process", ["rank 0", "rank 1"])
    with Recording.open(tmp_path / "all.anymps") as recording:
        assert [(line.line, line.waits) for line in recording.lines()] == [(7, 2)]
