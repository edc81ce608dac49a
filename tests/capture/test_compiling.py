"""What is recorded of compiled functions: lines of the program, and nothing of Dynamo for who compiles nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import anymps
from processes import ENABLE, run_command

pytestmark = pytest.mark.usefixtures("virtual_device")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def reads(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y * y.sum().item()


class Counting(torch.nn.Module):
    """A number that is new in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x * self.step


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
    """Recording imports nothing of it."""
    (tmp_path / "compiled.py").write_text(
        f"import sys\n{ENABLE}"
        f"with anymps.record(source='{source}') as capture:\n"
        "    torch.ones(3, device='mps').sum()\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    assert run_command(str(tmp_path / "compiled.py")).lines[-1:] == ["False"]
