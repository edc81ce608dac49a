"""A script for many processes runs as the only one (`--alone`), and what no Mac sends is told at its line."""

from __future__ import annotations

from pathlib import Path

from anymps.findings import Story, find
from anymps.record import Recording
from anymps.report import render_summary
from processes import MAC, run_command

SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl", init_method="env://", world_size=int(os.environ["WORLD_SIZE"]), rank=3)
assert (dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])) == (0, 1, 0)
model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[0])
with model.no_sync():
    model(torch.ones(3, 4).cuda()).sum().backward()
x = torch.arange(4.0).cuda()
dist.all_reduce(x)
work = dist.broadcast(x, src=0, async_op=True)
assert work.wait()
out = [torch.zeros(4).cuda()]
dist.all_gather(out, x)
whole = torch.zeros(2, 2).cuda()
dist.all_gather_into_tensor(whole, x)
part = torch.zeros(4).cuda()
dist.scatter(part, scatter_list=[x], src=0)
dist.gather(x, gather_list=out)
group = dist.new_group([0, 1], backend="nccl")
dist.barrier(group=group)
cpu = torch.ones(2)
dist.all_reduce(cpu)
said = [None]
dist.all_gather_object(said, "here")
dist.destroy_process_group()
print(out[0].tolist(), whole.tolist(), part.tolist(), cpu.tolist(), said, sorted(model.state_dict()))
""".lstrip()


def test_the_rest_of_the_script_is_seen(tmp_path: Path) -> None:
    """What is sent to nobody arrives; a collective of a CPU tensor is gloo's own and no finding."""
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("--cuda-as-mps", "--alone", "--no-report", "--mac", MAC, "--record", "run.anymps", "train.py")
    result = run_command("-m", "anymps", "run", *words, cwd=tmp_path)
    numbers = "[0.0, 1.0, 2.0, 3.0]"
    assert result.lines == [
        f"{numbers} [[0.0, 1.0], [2.0, 3.0]] {numbers} [1.0, 1.0] ['here'] ['module.bias', 'module.weight']"
    ], result.err
    with Recording.open(tmp_path / "run.anymps") as recording:
        findings = find(recording)
        told = {finding.site.line: finding.what for finding in findings if finding.id == "MPS411"}
        first = render_summary(Story.of(recording), findings).partition(". ")[0]
        assert first == f"Would not run on {MAC}: train.py:6 stops it (MPS411)"
    model = "torch.nn.parallel.DistributedDataParallel of a model on mps"
    lost = "of a tensor on mps has no counterpart on a Mac, and was passed over."
    assert told == {
        6: 'torch.distributed.init_process_group("nccl") has no counterpart on a Mac, and was passed over.',
        8: f"{model} has no counterpart on a Mac, and was passed over.",
        12: f"torch.distributed.all_reduce {lost}",
        13: f"torch.distributed.broadcast {lost}",
        16: f"torch.distributed.all_gather {lost}",
        18: f"torch.distributed.all_gather_into_tensor {lost}",
        20: f"torch.distributed.scatter {lost}",
        21: f"torch.distributed.gather {lost}",
    }


def test_without_it_nccl_is_refused(tmp_path: Path) -> None:
    """As before; a value of the variable that makes no sense is one line."""
    (tmp_path / "train.py").write_text(SCRIPT)
    result = run_command(
        "-m",
        "anymps",
        "run",
        "--cuda-as-mps",
        "--no-report",
        "--mac",
        MAC,
        "train.py",
        cwd=tmp_path,
        env={"WORLD_SIZE": "1"},
    )
    assert result.status == 1
    assert 'anymps: torch.distributed.init_process_group("nccl") has no counterpart on a Mac' in result.err
    wrong = run_command("-m", "anymps", "run", "train.py", cwd=tmp_path, env={"ANYMPS_ALONE": "yes"})
    assert (wrong.status, wrong.err) == (2, "anymps: ANYMPS_ALONE='yes' must be 1 or 0\n")
