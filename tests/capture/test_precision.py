"""What is recorded of precision: float16 and bfloat16, autocast for this device and for another, anomaly detection."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from noted import noted, recorded

pytestmark = pytest.mark.usefixtures("virtual_device")


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


def test_one_autocast_for_the_cpu_at_several_lines() -> None:
    """It is told once, with the line that makes it: that is the one to change."""
    model = nn.Linear(4, 2).to("mps")

    def train() -> None:
        region = torch.autocast("cpu")
        with region:
            model(torch.rand(2, 4, device="mps"))
        with region:
            model(torch.rand(2, 4, device="mps"))

    (note,) = recorded(train).noted("autocast")
    assert (note.occurrence.site.source, note.occurrence.count) == ('region = torch.autocast("cpu")', 1)


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


@pytest.mark.parametrize("reentrant", [False, True])
def test_autocast_of_a_checkpoint(reentrant: bool) -> None:
    """It switches autocast to what it was in forward, for the CPU to off: no island, nor is off for mps itself."""

    def run() -> None:
        x = torch.ones(2, 2, device="mps", requires_grad=True)
        with torch.autocast("mps", dtype=torch.float16):
            checkpoint(torch.mm, x, x, use_reentrant=reentrant).sum().backward()
            with torch.autocast("mps", enabled=False):
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
