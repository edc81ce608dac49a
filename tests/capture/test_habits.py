"""What is recorded besides operators: round trips, tensors born on the CPU, optimizers, what keeps tensors, clocks."""

from __future__ import annotations

import logging
import math
import time
import timeit
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributions import Dirichlet

from anymps.findings.rules._mps901_timing import clock_pairs
from anymps.record import Noted
from noted import noted, recorded

pytestmark = pytest.mark.usefixtures("virtual_device")


# --- round trips


def there_and_back(x: torch.Tensor) -> object:
    return x.cpu().to("mps")


def through_numpy(x: torch.Tensor) -> object:
    return torch.from_numpy(x.cpu().numpy()).to("mps")


def through_operators(x: torch.Tensor) -> object:
    return torch.softmax(x.cpu(), -1).clamp_(0, 0.3).view(2, 8).to("mps")


def in_place(x: torch.Tensor) -> object:
    host = x.cpu()
    host += 1
    return host.to("mps")


def of_a_view(x: torch.Tensor) -> object:
    return x.cpu()[1:].to("mps")


@pytest.mark.parametrize(
    ("trip", "operators"),
    [
        (there_and_back, []),
        (through_numpy, []),
        (of_a_view, []),
        (through_operators, ["aten::_softmax", "aten::clamp_"]),
        (in_place, ["aten::add_.Tensor"]),
    ],
)
def test_round_trip(trip: Callable[[torch.Tensor], object], operators: list[str]) -> None:
    """What comes back is known again by its memory, with the operators that made it of what had gone."""
    x = torch.rand(4, 4, device="mps")
    (trips,) = noted(lambda: trip(x), "round_trip")
    assert trips.facts == {"operators": operators}
    assert (trips.occurrence.count, trips.other.function) == (1, trip.__name__)
    assert trips.occurrence.site.function == trip.__name__


def changed_by_numpy(x: torch.Tensor) -> object:
    host = x.cpu().numpy()
    host[0] = 3
    return torch.from_numpy(host).to("mps")


def changed_before_an_operator(x: torch.Tensor) -> object:
    host = x.cpu()
    host.numpy()[0] = 3
    return host.exp().to("mps")


def in_float64(x: torch.Tensor) -> object:
    return x.cpu().double().sum(0).float().to("mps")


def with_data_of_the_cpu(x: torch.Tensor) -> object:
    return (x.cpu() + torch.rand(4, 4)).to("mps")


def of_its_own(x: torch.Tensor) -> object:
    x.cpu()
    return torch.rand(4, 4).to("mps")


@pytest.mark.parametrize(
    "trip", [changed_by_numpy, changed_before_an_operator, in_float64, with_data_of_the_cpu, of_its_own]
)
def test_what_is_no_round_trip(trip: Callable[[torch.Tensor], object]) -> None:
    """Values that mps could not have made, or not alone, have a reason to come from the CPU."""
    x = torch.rand(4, 4, device="mps")
    assert noted(lambda: trip(x), "round_trip") == ()


def test_memory_used_again_is_another_tensor() -> None:
    """A copy that is gone is not taken for a new tensor at its address."""

    def reuse() -> None:
        for _ in range(20):
            torch.rand(64, 64, device="mps").cpu()
            torch.full((64, 64), 1.0).to("mps")

    assert noted(reuse, "round_trip") == ()


def test_operators_are_watched_for_a_while_only() -> None:
    """After some dozen operators the values of a copy are no longer followed; the copy itself is still known."""
    x = torch.rand(4, device="mps")

    def much_later() -> None:
        host = x.cpu()
        other = torch.zeros(1)
        for _ in range(400):
            other.add_(1)
        host.exp().to("mps")
        host.to("mps")

    (trips,) = noted(much_later, "round_trip")
    assert trips.facts == {"operators": []}


# --- tensors born on the CPU


class Positions(nn.Module):
    """Makes what it adds as it is told."""

    def __init__(self, make: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.make, self.scale = make, 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.make(self, x)


def inline(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(x)).unsqueeze(-1).to(x.device)


def under_a_name(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(len(x), 1)
    mask[2:] = 1
    return mask.to(x.device)


def constant(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([module.scale], device=x.device)


def drawn(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(x), 1, generator=generator).to(x.device)


def of_a_shape(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(torch.tensor(x.shape[-1] + x.size(0), device=x.device))


def of_its_kind(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x.new_tensor(module.scale)


def of_a_root(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(math.sqrt(len(x))).to(x.device)


def of_an_order(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(8)
    for first in range(1):
        part = order[first : first + 4].to(x.device)
    return part.unsqueeze(-1)


def of_a_named_part(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(8)
    part = order[:4]
    return part.to(x.device).unsqueeze(-1)


@pytest.mark.parametrize(
    ("make", "expression", "generator"),
    [
        (of_an_order, "torch.randperm(8)", False),
        (of_a_named_part, "torch.randperm(8)", False),
        (of_a_shape, "torch.tensor(x.shape[-1] + x.size(0), device=x.device)", False),
        (of_its_kind, "x.new_tensor(module.scale)", False),
        (of_a_root, "torch.tensor(math.sqrt(len(x)))", False),
        (inline, "torch.arange(len(x))", False),
        (under_a_name, "torch.zeros(len(x), 1)", False),
        (constant, "torch.tensor([module.scale], device=x.device)", False),
        (drawn, "torch.randn(len(x), 1, generator=generator)", True),
    ],
)
def test_birth(make: Callable[[nn.Module, torch.Tensor], torch.Tensor], expression: str, generator: bool) -> None:
    """The call that made a tensor of the CPU, told once for a line that copies in every call."""
    module, x = Positions(make), torch.rand(4, 1, device="mps")
    (birth,) = noted(lambda: [module(x) for _ in range(3)], "born")
    number = make in (of_a_shape, of_its_kind, of_a_root)
    assert birth.facts == {"expression": expression, "generator": generator, "number": number}
    assert (birth.occurrence.count, birth.other.function) == (1, make.__name__)


OUTSIDE = torch.rand(4, 1)


def given(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    host = OUTSIDE
    return host.to(x.device)


def of_the_batch(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    lengths = [float(number) for number in range(len(x))]
    return torch.tensor(lengths).to(x.device)


def of_a_label(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    lengths = [float(number) for number in range(len(x))]
    return torch.tensor([lengths[0], float(lengths[1]), math.sqrt(max(lengths))]).sum().to(x.device)


def of_the_batch_and_its_kind(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    lengths = [float(number) for number in range(len(x))]
    return x.new_tensor(lengths)


def of_other_tensors(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (OUTSIDE + torch.ones(4, 1)).to(x.device)


def before_a_loop(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    table = torch.arange(4)
    for _ in range(2):
        y = table.to(x.device)
    return y


def of_a_distribution(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return Dirichlet(torch.ones(4)).sample().unsqueeze(-1).to(x.device)


def on_the_device(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.arange(4, device=x.device)


@pytest.mark.parametrize(
    "make",
    [
        *(given, of_the_batch, of_the_batch_and_its_kind, of_a_label, of_other_tensors, before_a_loop, on_the_device),
        of_a_distribution,
    ],
)
def test_what_is_not_born_there(make: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
    """Data, what is given from outside, and what is made less often than it is copied."""
    module, x = Positions(make), torch.rand(4, 1, device="mps")
    assert noted(lambda: module(x), "born") == ()


# --- data sets on the CPU


IMAGES = torch.rand(64, 4)


def sliced(step: int) -> torch.Tensor:
    return IMAGES[4 * step : 4 * step + 4].to("mps")


def chosen(step: int) -> torch.Tensor:
    x = IMAGES[torch.randperm(64)[:4]]
    return x.to("mps")


def gathered(step: int) -> torch.Tensor:
    x = torch.stack([IMAGES[step + row] for row in range(4)])
    return x.to("mps")


def halved(step: int) -> torch.Tensor:
    batch = torch.rand(8, 4)
    return batch[:4].to("mps")


def half_of_a_batch(step: int) -> torch.Tensor:
    for batch in IMAGES.split(8)[step:]:
        x = batch[:4].to("mps")
    return x


def whole(step: int) -> torch.Tensor:
    return IMAGES[:].to("mps")


@pytest.mark.parametrize(
    ("take", "known"),
    [(sliced, True), (chosen, True), (gathered, True), (halved, False), (half_of_a_batch, False), (whole, False)],
)
def test_data_set(take: Callable[[int], torch.Tensor], known: bool) -> None:
    """The tensor that batches are taken of by an index, once it has outlived some steps; a batch does not."""

    def train() -> None:
        model = nn.Linear(4, 2).to("mps")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            model(take(step)).sum().backward()
            optimizer.step()

    found = noted(train, "data_set")
    assert [mark.facts for mark in found] == [{"name": "IMAGES", "bytes": 1024}][: int(known)]
    assert {mark.occurrence.site.function for mark in found} <= {take.__name__}


def test_data_set_of_an_inference() -> None:
    """Nothing steps there: by the source it outlives the rounds, set before the loop; an argument may be a batch."""
    model = nn.Linear(4, 2).to("mps")

    def infer(given: torch.Tensor) -> None:
        held = torch.rand(32, 4)
        for step in range(4):
            model(held[4 * step : 4 * step + 4].to("mps"))
        model(given[:4].to("mps"))

    found = noted(lambda: infer(torch.rand(64, 4)), "data_set")
    assert [mark.facts for mark in found] == [{"name": "held", "bytes": 512}]


# --- optimizers


def test_optimizer_is_told_once() -> None:
    """Its class, its parameters and its options, at the line of its first step, with the line that made it."""
    model = nn.Linear(4, 2).to("mps")

    def train() -> None:
        optimizer = torch.optim.AdamW(model.parameters(), eps=1e-6)
        for _ in range(3):
            model(torch.rand(2, 4, device="mps")).sum().backward()
            optimizer.step()

    (optimizer,) = noted(train, "optimizer")
    assert optimizer.occurrence.site.source == "optimizer.step()"
    assert optimizer.other.source == "optimizer = torch.optim.AdamW(model.parameters(), eps=1e-6)"
    assert optimizer.occurrence.count == 1
    assert optimizer.facts == {
        "name": "AdamW", "torch": True, "tensors": 2, "on_mps": 2, "dtypes": ["float32"], "fused": ["None"],
        "foreach": ["None"], "capturable": ["False"], "differentiable": ["False"], "eps": ["1e-06"],
    }  # fmt: skip


# --- what keeps tensors


def keeping(kind: str) -> tuple[Noted, ...]:
    """Six steps whose loop keeps tensors in one of three ways, or in none."""
    model = nn.Linear(4, 2).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        total, kept = torch.zeros((), device="mps"), []
        for _ in range(6):
            loss = model(torch.rand(2, 4, device="mps")).sum()
            if kind == "graph":
                total = total + loss  # graph
            elif kind == "list":
                kept.append(loss.detach())  # list
            else:
                total = loss.detach()
            loss.backward()
            optimizer.step()

    return noted(train, "keeps")


@pytest.mark.parametrize(("kind", "name"), [("graph", "total"), ("list", "kept")])
def test_what_keeps_tensors(kind: str, name: str) -> None:
    """The line that gives a variable more to hold, once: through autograd's graph, or as items."""
    (keeper,) = keeping(kind)
    assert keeper.facts == {"name": name, "graph": kind == "graph"}
    assert keeper.occurrence.site.source.endswith(f"# {kind}")


def test_what_keeps_nothing() -> None:
    """A variable that is given a new tensor in each step keeps none of them."""
    assert keeping("neither") == ()


# --- clocks


def test_clock_reads() -> None:
    """The program's own reads are marks, those of the standard library are none; the intervals count the work."""
    x = torch.rand(4, 4, device="mps")

    def measure() -> None:
        start = time.perf_counter()
        logging.getLogger("anymps.test").warning("stamped by the standard library")
        for _ in range(3):
            x.exp()
        torch.mps.synchronize()
        x.sin()
        assert time.perf_counter() > start

    recording = recorded(measure)
    assert sum(note.occurrence.count for note in recording.noted("clock")) == 2
    (pair,) = clock_pairs(recording)
    assert (pair.intervals, pair.work, pair.pending, pair.first) == (1, 4, 1, 2)
    assert (pair.start.source, pair.end.source) == (
        "start = time.perf_counter()",
        "assert time.perf_counter() > start",
    )


def test_timeit_reads_the_clock_twice() -> None:
    """At the line that calls it; the pair holds the work of all its rounds."""
    x = torch.rand(4, 4, device="mps")
    (pair,) = clock_pairs(recorded(lambda: timeit.timeit(lambda: x.exp(), number=5)))
    assert pair.start == pair.end and pair.end.file == __file__
    assert (pair.intervals, pair.work, pair.pending) == (1, 5, 5)


def test_clock_asked_again_and_again() -> None:
    """A program that waits by asking the clock does not fill the tape."""

    def busy() -> None:
        for _ in range(10_500):
            time.monotonic()

    assert sum(note.occurrence.count for note in noted(busy, "clock")) == 10_000


def test_attributes_that_the_backend_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a line, by an assignment or `setattr`; what torch has is a program's own business."""

    def settings() -> None:
        for name in ("benchmark", "deterministic"):
            monkeypatch.setattr(torch.backends.mps, name, True, raising=False)
        torch.backends.mps.is_built = torch.backends.mps.is_built

    notes = noted(settings, "backend_attribute")
    assert [(note.facts, note.occurrence.count) for note in notes] == [({"name": "benchmark"}, 1)]


def test_marks_take_no_time_and_no_phase() -> None:
    """Marks of habits leave the step table as it was: the time before them is not theirs."""
    model = nn.Linear(4, 2).to("mps")
    optimizer = torch.optim.SGD(model.parameters())

    def train() -> None:
        for _ in range(3):
            model(torch.rand(2, 4, device="mps")).sum().backward()
            time.time()
            optimizer.step()

    table = {share.phase.label: share.time_ns for share in recorded(train).step_table().mean}
    assert table["other"] == 0
