"""What is recorded besides operators: round trips, tensors born on the CPU, loaders, optimizers, precision, clocks."""

from __future__ import annotations

import functools
import logging
import math
import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import anymps
from anymps.record import Noted, Recording
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")


def recorded(function: Callable[[], object]) -> Recording:
    """The recording of one call."""
    with anymps.record() as capture:
        function()
    return capture.recording


def noted(function: Callable[[], object], what: str) -> tuple[Noted, ...]:
    """What one call leaves about a habit."""
    return recorded(function).noted(what)


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


@pytest.mark.parametrize(
    ("make", "expression", "generator"),
    [
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


def on_the_device(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.arange(4, device=x.device)


@pytest.mark.parametrize(
    "make", [given, of_the_batch, of_the_batch_and_its_kind, of_a_label, of_other_tensors, before_a_loop, on_the_device]
)
def test_what_is_not_born_there(make: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
    """Data, what is given from outside, and what is made less often than it is copied."""
    module, x = Positions(make), torch.rand(4, 1, device="mps")
    assert noted(lambda: module(x), "born") == ()


# --- loaders and optimizers


class Rows(Dataset[torch.Tensor]):
    """Eight rows, through a function."""

    def __init__(self, transform: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2)


def loader_facts(**options: object) -> dict[str, object]:
    """What is noted of a loader that is used once."""
    dataset = options.pop("dataset", Rows())

    def use() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            iter(DataLoader(dataset, batch_size=4, **options))  # type: ignore[arg-type]

    (loader,) = noted(use, "loader")
    return dict(loader.facts)


def test_loader_without_workers() -> None:
    """Its settings, and nothing about processes."""
    assert loader_facts(pin_memory=True) == {"workers": 0, "pin_memory": True, "persistent": False}


def test_where_a_loader_was_made() -> None:
    """The other line of a loader's mark is the one that made it."""

    def use() -> None:
        loader = DataLoader(Rows(), batch_size=4)  # made
        for _ in loader:
            pass

    (loader,) = noted(use, "loader")
    assert loader.other.source.endswith("# made")


def test_loader_behind_a_progress_bar() -> None:
    """It belongs to the loop, not to the line of the bar's package that goes through it."""
    names: dict[str, Callable[[object], Iterator[object]]] = {}
    bar = "def bar(batches):\n    yield from batches\n"
    exec(compile(bar, "/lib/site-packages/tqdm/std.py", "exec"), names)

    def use() -> None:
        for _ in names["bar"](DataLoader(Rows(), batch_size=4)):  # loop
            pass

    (loader,) = noted(use, "loader")
    site = loader.occurrence.site
    assert (site.file, site.function, site.source.endswith("# loop")) == (__file__, "use", True)


def local_collate(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("options", "unpicklable"),
    [
        ({}, ""),
        ({"collate_fn": local_collate}, ""),
        ({"collate_fn": functools.partial(torch.stack, dim=0)}, ""),
        ({"collate_fn": lambda rows: torch.stack(rows)}, "collate_fn"),
        ({"worker_init_fn": lambda number: None}, "worker_init_fn"),
        ({"dataset": Rows(lambda row: row)}, "dataset.transform"),
        ({"dataset": torch.utils.data.Subset(Rows(lambda row: row), range(4))}, "dataset.dataset.transform"),
        ({"dataset": Rows(functools.partial(lambda row, by: row, by=2))}, "dataset.transform.func"),
    ],
)
def test_what_cannot_be_sent_to_workers(options: dict[str, object], unpicklable: str) -> None:
    """Lambdas and local functions, wherever the loader or its data set holds them; no worker is spawned here."""
    facts = loader_facts(num_workers=1, multiprocessing_context="fork", **options)
    assert (facts["workers"], facts["start_method"]) == (1, "fork")
    assert "unpicklable" not in facts  # a forked worker is sent nothing
    from anymps.capture._habits import _unpicklable

    loader = DataLoader(options.pop("dataset", Rows()), num_workers=1, **options)  # type: ignore[arg-type]
    assert next(_unpicklable(loader), "") == unpicklable


@pytest.mark.parametrize(
    ("dataset", "collate", "on_mps"),
    [
        (lambda: torch.utils.data.TensorDataset(torch.ones(4)), None, ""),
        (lambda: torch.utils.data.TensorDataset(torch.ones(4).to("mps")), None, "dataset.tensors[0]"),
        (lambda: [{"x": torch.ones(1, device="mps")}], None, "dataset[0]['x']"),
        (Rows, lambda: functools.partial(torch.add, torch.ones(1, device="mps")), "collate_fn.args[0]"),
    ],
)
def test_what_workers_are_given_on_mps(
    dataset: Callable[[], object], collate: Callable[[], object] | None, on_mps: str
) -> None:
    """Tensors on mps in the data set or in the arguments of a function for it; a batch that is moved later is none."""
    from anymps.capture._habits import _Given, _on_mps

    loader = DataLoader(dataset(), num_workers=1, collate_fn=collate() if collate is not None else None)  # type: ignore[arg-type, call-overload]
    assert next(_on_mps(_Given.of(loader, "dataset", "collate_fn")), "") == on_mps


@pytest.mark.parametrize(
    ("thing", "noted_once"),
    [
        (lambda: torch.ones(2, device="mps"), True),
        (lambda: (3, {"x": [torch.ones(2, device="mps")]}), True),
        (lambda: torch.ones(2), False),
        (lambda: "mps", False),
    ],
)
def test_what_a_queue_is_given_on_mps(thing: Callable[[], object], noted_once: bool) -> None:
    """At the line that puts it there: the queue's own thread sends it later, and nobody hears what torch says."""
    queue = torch.multiprocessing.get_context("spawn").Queue()
    queue._start_thread = lambda: None  # nothing is sent
    queue._thread = object()
    given = thing()

    def use() -> None:
        for _ in range(2):
            queue.put(given)  # here

    sent = noted(use, "sent")
    assert [told.occurrence.site.source for told in sent] == ["queue.put(given)  # here"] * noted_once


GUARDED = """
import torch, anymps
from torch.utils.data import DataLoader
{enable}
def main():
    for x in DataLoader(torch.rand(4, 2), num_workers=1):
        pass
with anymps.record() as capture:
    {call}
(loader,) = capture.recording.noted("loader")
print(loader.facts["guarded"], repr(loader.facts["start_method"]))
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [("main()", "False ''"), ("if __name__ == '__main__': main()", "False ''"), ("pass", None)],
)
def test_scripts_without_a_guard(call: str, expected: str | None, tmp_path: Path) -> None:
    """Whether the script's own line lies under `if __name__ == "__main__"` at its top level."""
    script = tmp_path / "train.py"
    text = GUARDED.format(enable=ENABLE, call=call)
    if expected is None:
        text = text.replace("with anymps.record()", "if __name__ == '__main__':\n  with anymps.record()")
        text = text.replace("    pass\n(loader", "    main()\n(loader")
        expected = "True ''"
    script.write_text(text)
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    answer = run_with_torch(code, {"ANYMPS_START_METHOD": "fork"})
    assert answer.lines[-1] == expected


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


# --- precision


def test_precision() -> None:
    """Autocast regions and scalers that are on, and a backward under autocast, once a line."""
    model = nn.Linear(4, 2).to("mps")

    def train() -> None:
        for _ in range(2):
            with torch.autocast("mps", dtype=torch.bfloat16):
                model(torch.rand(2, 4, device="mps")).sum().backward()
            with torch.autocast("mps", enabled=False), torch.autocast("cpu"):
                model(torch.rand(2, 4, device="mps")).sum().backward()
        torch.amp.GradScaler("mps")
        torch.amp.GradScaler("mps", enabled=False)

    recording = recorded(train)
    assert [(note.facts, note.occurrence.count) for note in recording.noted("autocast")] == [
        ({"device": "mps", "dtype": "bfloat16", "refused": False}, 1),
        ({"device": "cpu", "dtype": "bfloat16", "refused": False}, 1),
    ]
    assert [note.facts for note in recording.noted("grad_scaler")] == [{"device": "mps"}]
    assert [note.facts for note in recording.noted("backward")] == [{"autocast": "bfloat16"}]


def test_autocast_for_the_cpu_around_work_on_the_cpu() -> None:
    """An autocast for the CPU is noted only where tensors are made on mps under it."""

    def compute() -> None:
        with torch.autocast("cpu"):
            nn.Linear(4, 2)(torch.rand(2, 4))

    assert noted(compute, "autocast") == ()


@pytest.mark.parametrize("kind", ["with", "decorator", "old name"])
@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.autocast")
def test_autocast_island_for_another_device(kind: str) -> None:
    """A region that switches autocast off for another device is noted with the line that switched mps on."""
    x = torch.rand(2, 2, device="mps")

    def island() -> torch.dtype:
        with torch.autocast("cuda", enabled=False):
            return (x @ x).dtype

    @torch.autocast("cpu", enabled=False)
    def decorated() -> torch.dtype:
        return (x @ x).dtype

    def old() -> torch.dtype:
        with torch.cuda.amp.autocast(enabled=False):
            return (x @ x).dtype

    called = {"with": island, "decorator": decorated, "old name": old}[kind]
    dtypes = []

    def run() -> None:
        for _ in range(2):
            with torch.autocast("mps", dtype=torch.float16):
                dtypes.append(called())
        called()  # outside of autocast for mps it does no harm

    (note,) = noted(run, "autocast_island")
    assert dtypes == [torch.float16] * 2
    assert note.facts == {"device": "cpu" if kind == "decorator" else "cuda", "dtype": "float16"}
    assert (note.occurrence.count, note.other.source) == (1, 'with torch.autocast("mps", dtype=torch.float16):')


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_autocast_island_that_is_compiled(backend: str) -> None:
    """Within a function for torch.compile it stands at the `with`, not at the call; told once."""

    def island(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", enabled=False):
            return x @ x

    compiled = torch.compile(island, backend=backend)

    def run() -> None:
        x = torch.ones(2, 2, device="mps")
        with torch.autocast("mps", dtype=torch.float16):
            for _ in range(2):
                compiled(x)

    (note,) = noted(run, "autocast_island")
    assert note.occurrence.site.source == 'with torch.autocast("cuda", enabled=False):'
    assert note.other.source == 'with torch.autocast("mps", dtype=torch.float16):'


def test_autocast_island_for_mps() -> None:
    """A region that switches autocast off for mps itself is what the program means."""

    def run() -> None:
        with torch.autocast("mps", dtype=torch.float16), torch.autocast("mps", enabled=False):
            torch.rand(2, device="mps")

    assert noted(run, "autocast_island") == ()


@pytest.mark.filterwarnings("ignore:In MPS autocast", "ignore:.*GradScaler")
def test_precision_that_torch_turns_down() -> None:
    """An autocast that torch switches off, and a scaler by its old name, are noted at the program's own line."""

    def ask() -> None:
        torch.autocast("mps", dtype=torch.float64)
        torch.cuda.amp.GradScaler(enabled=True)  # torch's wrapper of it lies in typing_extensions

    recording = recorded(ask)
    (region,) = recording.noted("autocast")
    assert region.facts == {"device": "mps", "dtype": "float64", "refused": True}
    (scaler,) = recording.noted("grad_scaler")
    assert (scaler.facts, scaler.occurrence.site.file) == ({"device": "cuda"}, __file__)


@pytest.mark.parametrize(("check_nan", "expected"), [(True, ["loss.backward()"]), (False, [])])
def test_anomaly_detection(check_nan: bool, expected: list[str]) -> None:
    """Once a line that calls a backward whose gradients are searched for NaN."""
    model = nn.Linear(4, 2).to("mps")

    def train() -> None:
        loss = model(torch.rand(2, 4, device="mps")).sum()
        loss.backward()
        with torch.autograd.set_detect_anomaly(True, check_nan=check_nan):
            for _ in range(2):
                loss = model(torch.rand(2, 4, device="mps")).sum()
                loss.backward()

    assert [note.occurrence.site.source for note in noted(train, "anomaly")] == expected


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
    (pair,) = recording.clock_pairs()
    assert (pair.intervals, pair.work, pair.pending, pair.first) == (1, 4, 1, 2)
    assert (pair.start.source, pair.end.source) == (
        "start = time.perf_counter()",
        "assert time.perf_counter() > start",
    )


def test_clock_asked_again_and_again() -> None:
    """A program that waits by asking the clock does not fill the tape."""

    def busy() -> None:
        for _ in range(10_500):
            time.monotonic()

    assert sum(note.occurrence.count for note in noted(busy, "clock")) == 10_000


def watched() -> Iterator[object]:
    """All that is replaced while a recording runs."""
    yield from (time.time, time.perf_counter, time.monotonic, time.time_ns, time.perf_counter_ns, time.monotonic_ns)
    yield from (timeit.default_timer, torch.compile, torch.autograd.backward)
    yield from (torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__)
    yield torch.amp.GradScaler.__init__


def test_everything_is_put_back() -> None:
    """After a recording torch and the clocks are what they were."""
    before = list(watched())
    with anymps.record():
        assert all(now is not former for now, former in zip(watched(), before, strict=True))
        kept = time.perf_counter
    assert all(now is former for now, former in zip(watched(), before, strict=True))
    assert kept() <= time.perf_counter()  # what a program keeps goes on working


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
