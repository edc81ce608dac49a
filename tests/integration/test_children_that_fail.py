"""A rank that dies: the others are recorded whole, one line or the verdict names it, and the launcher's code stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.findings import find
from anymps.record import Recording
from processes import FLUSHED, Result, run_anymps

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RANKS = """
import os, signal, sys, time, torch
rank = int(os.environ["RANK"])
x = torch.ones(3, device="mps") + rank
print(x.sum().item(), flush=True)
if rank == 1:
    while not os.path.exists("ready"):
        time.sleep(0.1)
    exec({flushed!r})
    {ending}
open("ready", "w").close()
while True:
    time.sleep(0.1)
"""


def torchrun(folder: Path, ending: str, script: str = RANKS) -> Result:
    """Two ranks, the second of which ends so; the launcher then ends the first."""
    (folder / "train.py").write_text(script.format(ending=ending, flushed=FLUSHED), encoding="utf-8")
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
    return run_anymps("run", "--mac", "M1 8GB", "--record", "all.anymps", *launcher, cwd=folder)


def parts(folder: Path) -> dict[str, bool]:
    """The processes, and whether each is whole."""
    with Recording.open(folder / "all.anymps") as recording:
        return {part.name: part.complete for part in recording.parts}


def ours(result: Result) -> list[str]:
    """Our lines after the banner, and the verdict."""
    said = result.err.splitlines()
    return [line for line in said if line.startswith(("anymps: rank", "The script", "Would"))]


def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    """It keeps its name, which its launcher had told it, and what it had written to the file."""
    result = torchrun(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert result.status == 1
    assert parts(tmp_path) == {"main process": True, "rank 0": True, "rank 1": False}
    line, verdict = ours(result)
    assert line == "anymps: rank 1 was killed; the recording holds what it did until then"
    assert verdict.startswith("The script ended with ChildFailedError.")


LOST = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(3, device="mps")
if dist.get_rank() == 1:
    raise ValueError("no data")
dist.all_reduce(x.cpu())
"""


def test_ranks_that_fail_as_another_is_gone(tmp_path: Path) -> None:
    """The verdict is about the one that failed first, also where a rank of a lower number waits for it."""
    result = torchrun(tmp_path, "", LOST)
    assert result.status == 1
    assert "Connection" in result.err  # what gloo raises in rank 0
    assert parts(tmp_path) == {"main process": True, "rank 0": True, "rank 1": True}
    (verdict,) = ours(result)
    assert verdict.startswith("The script failed, as rank 1 ended with ValueError at train.py:7.")


def test_a_rank_that_mps_refuses(tmp_path: Path) -> None:
    """It is the verdict on the Mac, and the finding names the rank."""
    result = torchrun(tmp_path, "x.double()")
    assert result.status == 1
    (verdict,) = ours(result)
    assert verdict.startswith("Would not run on M1 8GB: train.py:10 raises TypeError.")
    with Recording.open(tmp_path / "all.anymps") as recording:
        assert [(finding.site.line, finding.processes) for finding in find(recording) if finding.id == "MPS301"] == [
            (10, ("rank 1",))
        ]
