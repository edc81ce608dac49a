"""The tape of a test suite: sections with what a gate needs, blocks with everything, and the file if asked for."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest
import torch
import torch.utils.checkpoint

import anymps
from anymps.capture._suite import Section, SuiteCapture, tensor_bytes
from anymps.record import Fate, RefusalKind, Wait
from anymps.record.format._schema import ENTRY

pytestmark = pytest.mark.usefixtures("virtual_device")


def work() -> None:
    """Four calls: two that a section keeps none of, a read and a refusal."""
    x = torch.ones(4, device="mps")
    x.exp().sum().item()
    with pytest.raises(TypeError):
        torch.ones(1, dtype=torch.float64, device="mps")


def test_sections() -> None:
    """A section keeps its own reads and refusals, with the line, and counts the rest; the next begins empty."""
    with SuiteCapture() as capture:
        work()
        assert capture.position() == 2 * ENTRY.size
        assert capture.so_far() == (first := capture.cut())
        assert capture.cut() == Section()
        work()
        second = capture.cut()
    assert [(wait, site.source, count) for (_, wait, site), count in first.waits.items()] == [
        (Wait.ITEM, "x.exp().sum().item()", 1)
    ]
    assert [(refusal.kind, refusal.site.source) for refusal in first.refusals] == [
        (RefusalKind.FLOAT64, 'torch.ones(1, dtype=torch.float64, device="mps")')
    ]
    assert first.calls == second.calls > 3
    assert first.waits == second.waits
    assert first.fallbacks == {}


def test_fallbacks() -> None:
    """An operator that ran on the CPU is among the fallbacks and among the waits."""
    with SuiteCapture() as capture:
        table = torch.ones(3, 3, device="mps")
        index = torch.tensor([0], device="mps")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning comes once a process
            torch.embedding_renorm_(table, index, 1.0, 2.0)
        section = capture.cut()
    assert [(name, fate) for name, fate, _ in section.fallbacks] == [("aten::embedding_renorm_", Fate.ALWAYS_FALLBACK)]
    assert [name for name, wait, _ in section.waits if wait is Wait.FALLBACK] == ["aten::embedding_renorm_"]


def gather(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Waits in the forward, and again in the backward."""
    return x[mask] * 2


def step(layer: torch.nn.Module) -> None:
    """A step with reads in forward, backward and the recomputation of a checkpoint."""
    x = torch.ones(3, 2, device="mps", requires_grad=True)
    mask = torch.tensor([True, False, True], device="mps")
    kept = gather(torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False), mask)
    kept.square().sum().backward()
    assert kept.detach().sum().item() != 0
    layer.zero_grad()


class Reading(torch.nn.Module):
    """Reads a value in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2, device="mps")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y * (1 + y.detach().abs().max().item())


def test_a_section_is_the_same_whatever_is_kept(tmp_path: Path) -> None:
    """Without a file plain calls are not written; what waits, where, and how many calls there were is the same."""
    layer = Reading()
    with SuiteCapture() as alone:
        step(layer)
        first = alone.cut()
        with alone.every_call():
            step(layer)
            assert alone.position() > 10 * ENTRY.size
            second = alone.cut()
        step(layer)
        assert alone.cut() == first
    with SuiteCapture(tmp_path / "run.anymps") as kept:
        step(layer)
        third = kept.cut()
    assert first == second == third
    lines = {site.source for _, wait, site in first.waits if wait is not Wait.COPY_TO_MPS}
    assert lines == {
        "return x[mask] * 2",
        "return y * (1 + y.detach().abs().max().item())",
        "assert kept.detach().sum().item() != 0",
    }


def test_a_block_holds_every_call() -> None:
    """A block is a recording of its own with the calls inside it, steps included, and none from before or after."""
    layer = torch.nn.Linear(2, 2).to("mps")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with SuiteCapture() as capture:
        layer(torch.ones(1, 2, device="mps")).tanh()
        with capture.every_call():
            start = capture.position()
            layer(torch.ones(1, 2, device="mps")).sum().backward()
            optimizer.step()
            recording = capture.block(start)
        capture.cut()
    names = {use.name for use in recording.operators()}
    assert {"aten::linear", "aten::linear_backward"} <= names
    assert "aten::tanh" not in names
    assert recording.complete_steps == 1
    assert recording.step_table().averaged == 0


def test_the_file_holds_the_session(tmp_path: Path) -> None:
    """With a path everything is kept there, whatever the sections take."""
    with SuiteCapture(tmp_path / "run.anymps", script="pytest") as capture:
        work()
        capture.cut()
        work()
    with anymps.Recording.open(tmp_path / "run.anymps") as recording:
        assert recording.complete
        assert recording.dropped == 0
        assert {use.name: use.count for use in recording.operators()}["aten::exp"] == 2
        assert len(recording.refusals()) == 2


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        ("float32[2, 3]", 24),
        ("bool[5]", 5),
        ("complex64[2]", 16),
        ("bfloat16[]", 2),
        ("int64[0, 4]", 0),
        ("float8_e4m3fn[8]", 8),
        ("float32[2] on cpu", 0),
        ("nonsense", 0),
    ],
)
def test_sizes(tensor: str, size: int) -> None:
    """The bytes of a tensor by its text; one on the CPU takes none of the device."""
    assert tensor_bytes(tensor) == size


@pytest.mark.parametrize("source", ["native", "observer"])
def test_waits_in_pythons_own_library(source: str) -> None:
    """A log line that shows a tensor waits at the line that logs, not in the logging package."""
    suite = SuiteCapture()
    suite._source = source
    with suite as capture:
        record = logging.makeLogRecord({"msg": "loss %s", "args": (torch.ones(1, device="mps"),)})
        logging.Formatter().format(record)
        waits = capture.cut().waits
    assert {site.source for _, _, site in waits} == {"logging.Formatter().format(record)"}
