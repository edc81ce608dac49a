"""Processes that a script starts under `anymps run`: by spawn, as on macOS, with the device and without a word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anymps.record import Recording
from processes import Result, run_anymps

pytestmark = pytest.mark.integration

LOADING = """
import multiprocessing, torch
from torch.utils.data import DataLoader

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((2,), float(index), device="mps").cpu()

GUARD
    print(multiprocessing.get_start_method(allow_none=True))
    for x in DataLoader(Numbers(), batch_size=2, num_workers=1, OPTIONS):
        print(x.to("mps").sum().item())
"""
GUARD = 'if __name__ == "__main__":'

POOL = """
import multiprocessing, torch

def work(number):
    return torch.full((2,), float(number), device="mps").sum().item(), torch.backends.mps.get_name()

if __name__ == "__main__":
    with multiprocessing.Pool(1) as pool:
        print(*pool.map(work, [3]))
    print(multiprocessing.get_start_method())
"""


def loading(guard: str = GUARD, options: str = "") -> str:
    """A script that goes through the batches of a DataLoader with one worker."""
    return LOADING.replace("GUARD", guard).replace("OPTIONS", options)


def run(folder: Path, text: str, *options: str) -> Result:
    """Runs a script by `anymps run` on an M1 with 8 GB."""
    script = folder / "job" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(text, encoding="utf-8")
    # Another package of that name beside the script is no concern of its processes.
    (script.parent / "anymps.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    return run_anymps("run", "--mac", "M1 8GB", *options, str(script), cwd=folder)


def test_workers_are_spawned_with_the_device(tmp_path: Path) -> None:
    """The method is left open to the script, a worker uses mps and is recorded, and the run is good."""
    result = run(tmp_path, loading(), "--record", "all.anymps")
    assert result.lines == ["None", "2.0", "10.0"]
    assert result.err.count("VIRTUAL") == 1
    assert "Would run on M1 8GB. No findings." in result.err  # and the time of a step, unless loading takes most of it
    with Recording.open(tmp_path / "all.anymps") as recording:
        assert [part.name for part in recording.parts] == ["main process", "process 2"]
        assert {line.line: line.waits for line in recording.lines()}[10] == 4  # on a Mac each read back is a wait


@pytest.mark.slow
def test_a_batch_on_mps_that_a_worker_cannot_send(tmp_path: Path) -> None:
    """The loop raises what torch said in the worker, and that a Mac waits for ever; it is a finding."""
    result = run(tmp_path, loading().replace(".cpu()", ""))
    assert result.status == 1
    assert result.err.count("only available on CPU (a Mac prints this only in the worker, and the loop waits forever)")
    assert "Would not run on M1 8GB: job/train.py:14 raises RuntimeError. 1 error.\n" in result.err
    assert "MPS806" in result.err


def test_a_pool_is_spawned_with_the_same_mac(tmp_path: Path) -> None:
    """What `multiprocessing` starts plays the parent's Mac; with --no-children none of its calls is recorded."""
    result = run(tmp_path, POOL, "--report", "json=-", "--no-report", "--no-children")
    assert result.out.startswith("(6.0, 'Apple M1')\nspawn\n")
    assert "aten::full" not in result.out


@pytest.mark.slow
def test_what_children_do_counts_as_use(tmp_path: Path) -> None:
    """A pool that works on mps for its parent, unrecorded, is no run without mps; one that does not is."""
    used = run(tmp_path / "a", POOL, "--no-children")
    spared = run(tmp_path / "b", POOL.replace('device="mps"', 'device="cpu"'))
    assert (used.status, spared.status) == (0, 4)
    assert "Only child processes ran on mps, unrecorded, so this says nothing about M1 8GB. No findings.\n" in used.err
    assert "Nothing ran on mps, so this says nothing about M1 8GB. 1 error.\n" in spared.err


def test_a_script_without_a_guard_fails_as_on_a_mac(tmp_path: Path) -> None:
    """The worker imports the script, comes to the loader and raises; the finding stands for the exception."""
    result = run(tmp_path, loading("if True:"))
    assert result.status == 1
    assert "An attempt has been made to start a new process before the" in result.err
    assert (
        "Would not run on M1 8GB: job/train.py:14 stops it (MPS802). 1 error.\n"
        "Change first: job/train.py:14\n"
        '  MPS802  Workers without `if __name__ == "__main__"`\n'
    ) in result.err


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_on_demand(tmp_path: Path) -> None:
    """`--start-method fork` runs the script as Linux does; the report still says what a Mac does."""
    text = loading("if True:").replace('device="mps").cpu()', 'device="cpu")')
    result = run(tmp_path, text, "--start-method", "fork")
    assert result.lines == ["None", "2.0", "10.0"]
    assert "Would not run on M1 8GB: job/train.py:14 stops it (MPS802). 1 error.\n" in result.err
