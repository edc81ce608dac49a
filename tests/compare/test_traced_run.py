"""What a run writes into its trace: steps, losses, autocast, and which calls; in a process of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from anymps.compare import Ending, Trace, Traced
from anymps.compare._trace import TraceWriter
from anymps.compare.inside._run import TracedRun
from anymps.compare.inside._tracer import Tracer
from anymps.rules import installed_torch
from anymps.runs.inside import watch_losses
from processes import run_with_torch

RUN = """
from pathlib import Path
import torch
from anymps.compare import Traced
from anymps.compare.inside import TracedRun

run = TracedRun(Traced(3, random_on_cpu=True, names=("mps", "cuda")), "cpu", Path({path!r}), None)
run.start()
model = torch.nn.Linear(2, 2).to("mps")  # the CPU, by another name
one, other = (torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters())
for step in range(13):
    with torch.autocast("mps", dtype=torch.bfloat16, enabled=step == 1):
        with torch.autocast("cuda", dtype=torch.float16, enabled=False):
            y = model(torch.ones(1, 2))
        y = model(torch.ones(1, 2, device="cuda"))
    loss = (y.float() * 0 + step).mean()
    torch.autograd.backward([loss, (y.float() * 2).sum()])
    model(torch.ones(2, 2)).backward(torch.ones(2, 2))  # no loss
    other.step()
    one.step()
run.close("ValueError of mine", None)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The trace of a small training."""
    path = tmp_path_factory.mktemp("trained") / "trace"
    assert run_with_torch(RUN.format(path=str(path))).lines == []
    return Trace.open(path)


def test_steps(trained: Trace) -> None:
    """The optimizer that steps first counts them; of later ones each at twice the distance is traced."""
    assert trained.traced_steps == [0, 1, 2, 5, 11]
    assert sorted({call.step for call in trained.calls}) == [0, 1, 2, 5, 11]
    counts = Counter(call.step for call in trained.calls if call.name == "addmm")
    assert counts == {0: 3, 1: 3, 2: 3, 5: 3, 11: 3}
    assert trained.ending == Ending("ValueError of mine", steps=13, is_cut=False)
    assert trained.facts == {"device": "cpu", "torch": torch.__version__, "used": "1"}


def test_losses(trained: Trace) -> None:
    """Each number that backward begins with, of all steps; what has more than one is none."""
    assert [loss.step for loss in trained.losses] == [step for step in range(13) for _ in range(2)]
    assert [loss.value for loss in trained.losses[::2]] == [float(step) for step in range(13)]
    assert {loss.site.source for loss in trained.losses} == {""}  # a program that has no file


def test_autocast(trained: Trace) -> None:
    """The innermost one counts, to its end."""
    casts = [(call.step, call.autocast) for call in trained.calls if call.name == "addmm"]
    assert casts[:9] == [*[(0, "")] * 3, (1, ""), (1, "bfloat16"), (1, ""), *[(2, "")] * 3]


def traced(path: Path, device: str) -> tuple[TraceWriter, Tracer]:
    """A tracer that is still to be entered."""
    writer = TraceWriter(path)
    return writer, Tracer(writer, device, in_host_memory=False, by_kernels=lambda: 0)


def test_copies_that_one_device_may_not_need_are_no_calls(tmp_path: Path) -> None:
    """In the same dtype; a cast computes."""
    writer, tracer = traced(tmp_path / "trace", "cpu")
    x = torch.ones(2)
    with tracer:
        x.clone(), x.to(torch.float32, copy=True), torch.empty(2).copy_(x)
        torch.empty(2, dtype=torch.int64).copy_(x)
        x.to(torch.float16)
        x.view(2, 1).detach()
    writer.close(Ending())
    found = Trace.open(tmp_path / "trace").calls
    assert [(call.name, call.results[0].sketch.dtype) for call in found] == [("copy", "int64"), ("_to_copy", "float16")]


def test_the_device_is_used_when_something_is_on_it(mps_device: torch.device, tmp_path: Path) -> None:
    """What the CPU computes beside it does not count."""
    writer, tracer = traced(tmp_path / "trace", "mps")
    x = torch.ones(2, device=mps_device)
    with tracer:
        torch.ones(2) + 1
        assert not tracer.used
        x.view(1, 2)
        assert tracer.used
    writer.close(Ending())
    assert Trace.open(tmp_path / "trace").facts == {"used": "1"}


DRAWS = """
from pathlib import Path
import anymps
anymps.enable(quiet=True)
import torch
from anymps.compare import Traced
from anymps.compare.inside import TracedRun

def drawn(device):
    torch.manual_seed(5)
    x = torch.full((4,), 0.5, device=device)
    generator = torch.Generator(device=device) if device == "mps" else None
    y = torch.zeros(4, device=device)
    same = y.uniform_(generator=generator)
    assert same is y
    return [torch.bernoulli(x), torch.rand(3, device=device), y, torch.nn.functional.dropout(x, 0.5)]

expected = drawn("cpu")
run = TracedRun(Traced(3, random_on_cpu=True), "mps", Path({path!r}), None)
run.start()
found = drawn("mps")
alone = torch.rand(2)
run.close("", None)
print([tensor.device.type for tensor in found], alone.device.type)
print([tensor.tolist() for tensor in found] == [tensor.tolist() for tensor in expected])
"""


def test_random_numbers_of_the_cpu(tmp_path: Path) -> None:
    """Drawn by the CPU's generator wherever they go: written in place, made anew, and beside a generator of mps."""
    path = tmp_path / "trace"
    assert run_with_torch(DRAWS.format(path=str(path))).lines == ["['mps', 'mps', 'mps', 'mps'] cpu", "True"]
    assert [(call.name, call.with_generator) for call in Trace.open(path).calls if call.is_random] == [
        *(("uniform", True), ("bernoulli", False), ("rand", False), ("bernoulli", False), ("rand", False))
    ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TracedRun:
    """A run that watches losses and nothing else."""
    made = TracedRun(Traced(full_steps=1), "cpu", tmp_path / "trace", None)
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    watch_losses(made._note_losses)
    return made


def test_backward_on_an_edge_of_a_graph(run: TracedRun, tmp_path: Path) -> None:
    """An edge has no number: it is no loss, alone or beside one, and backward does its work."""
    weight = torch.ones(3, requires_grad=True)
    loss = (2 * weight).sum()
    edge = torch.autograd.graph.get_gradient_edge(loss)
    torch.autograd.backward(edge, torch.tensor(1.0), retain_graph=True)
    torch.autograd.backward([edge, loss], [torch.tensor(1.0), None], retain_graph=True)
    run.close("", None)
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0, 6.0, 6.0]
    assert [loss.value for loss in Trace.open(tmp_path / "trace").losses] == [6.0]


GIVEN = """
import anymps
anymps.enable("M3 Pro 18GB, macOS 15.4", quiet=True)
from pathlib import Path
import torch
from anymps.compare.inside._tracer import Tracer
from anymps.compare._trace import TraceWriter

halves, ones = torch.ones(2, 8, dtype=torch.float16, device="mps"), torch.ones(8, device="mps")
table = torch.arange(4.0)
writer = TraceWriter(Path({path!r}))
with Tracer(writer, "mps", in_host_memory=True, by_kernels=lambda: 0):
    torch.nn.functional.layer_norm(halves, [8], ones, ones)
    torch.nn.functional.layer_norm(halves.float(), [8], ones, ones)
    ones + table[2]
    ones + 2.5
    torch.add(ones, torch.tensor(2.0), alpha=3)
"""


@pytest.mark.skipif(installed_torch().version.release[:2] != (2, 13), reason="the faults of torch 2.13")
def test_what_a_call_is_given_beside_tensors(tmp_path: Path) -> None:
    """The program's numbers, and the faults whose conditions the call meets: not all of its operator's."""
    path = tmp_path / "trace"
    assert run_with_torch(GIVEN.format(path=str(path))).lines == []
    calls = [call for call in Trace.open(path).calls if call.name in ("native_layer_norm", "add")]
    assert [(call.numbers, call.faults) for call in calls] == [
        ((8, 1e-5), ("MPS634",)),
        ((8, 1e-5), ()),
        ((), ("MPS605",)),
        ((2.5,), ()),
        ((3,), ()),
    ]
