"""What is recorded of torch.compile: graph breaks and recompilations, told by Dynamo itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import anymps
from anymps.record import Noted
from processes import ENABLE, run_command

pytestmark = pytest.mark.usefixtures("virtual_device")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def noted(what: str, function: Callable[..., object], *calls: tuple[object, ...]) -> tuple[Noted, ...]:
    """What calls of a compiled function leave."""
    with anymps.record() as capture:
        fast = torch.compile(function, backend="eager")
        for call in calls:
            fast(torch.ones(3, device="mps"), *call)
    return capture.recording.noted(what)


def reads(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y * y.sum().item()


def reads_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x + x.mean().item()
    return x


def asks_for_a_break(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


def outer(x: torch.Tensor) -> torch.Tensor:
    return reads(x + 1) + 1


def test_a_graph_break_is_noted_with_its_line_and_reason() -> None:
    """Once, however often the function runs; the other line is the one that called it."""
    (broken,) = noted("graph_break", reads, (), ())
    assert broken.facts == {
        "kind": "Unsupported Tensor.item() call with capture_scalar_outputs=False",
        "explanation": "Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs=False.",
        "skipped": False,
    }
    assert (broken.occurrence.site.source, broken.occurrence.site.function) == ("return y * y.sum().item()", "reads")
    assert broken.other.function == "noted"


@pytest.mark.parametrize(
    ("function", "breaks"),
    [
        (reads_in_a_loop, [(True, "x = x + x.mean().item()")]),  # Dynamo does not go on after one in a loop
        (outer, [(False, "return y * y.sum().item()")]),  # met twice: inlined, and in the function by itself
        (asks_for_a_break, []),
    ],
)
def test_which_breaks_are_noted(function: Callable[..., object], breaks: list[tuple[bool, str]]) -> None:
    """Each once, and whether the function was left uncompiled; one that the code asks for is none."""
    found = noted("graph_break", function, ())
    assert [(broken.facts["skipped"], broken.occurrence.site.source) for broken in found] == breaks


class Counting(torch.nn.Module):
    """A number that is new in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x * self.step


def test_recompilations_are_noted_with_their_guard() -> None:
    """Each with the guard that failed; the one that reaches the limit says so."""
    marks = noted("recompiled", Counting(), *[()] * 9)
    assert [mark.facts["guard"] for mark in marks] == [f"self.step == {number}" for number in range(8)]
    assert [mark.facts["limit"] for mark in marks] == [""] * 7 + ["recompile_limit"]
    assert {(mark.occurrence.site.function, mark.other.function) for mark in marks} == {("forward", "noted")}


def test_a_place_has_one_number_however_often_it_is_compiled() -> None:
    """Dynamo makes new code of a function for each compilation; what runs there stays one line of the program."""
    model = Counting()
    with anymps.record() as capture:
        fast = torch.compile(lambda x: model(x) * reads(x), backend="eager")
        for _ in range(4):
            fast(torch.ones(3, device="mps"))
    recording = capture.recording
    places = {recording.site(call.site) for call in recording.calls()}
    assert len({(place.file, place.line, place.function, place.via) for place in places}) == len(places)
    here = {place.function for place in places if place.known}
    assert here == {"reads", "<lambda>", "test_a_place_has_one_number_however_often_it_is_compiled"}


@pytest.mark.parametrize("source", ["native", "observer"])
def test_dynamo_is_not_loaded_for_who_does_not_compile(source: str, tmp_path: Path) -> None:
    """Recording imports nothing of it, and watches it from the program's first torch.compile on."""
    (tmp_path / "compiled.py").write_text(
        f"import sys\n{ENABLE}"
        f"with anymps.record(source='{source}') as capture:\n"
        "    torch.ones(3, device='mps').sum()\n"
        "    print('torch._dynamo' in sys.modules)\n"
        "    torch.compile(lambda x: x * x.sum().item(), backend='eager')(torch.ones(3, device='mps'))\n"
        "print(len(capture.recording.noted('graph_break')))\n"
    )
    assert run_command(str(tmp_path / "compiled.py")).lines[-2:] == ["False", "1"]
