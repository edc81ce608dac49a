"""What public training scripts brought to light: closures, custom backwards, casting copies, constants, callers."""

from __future__ import annotations

import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import anymps
from anymps.findings import Finding, find
from anymps.record import Phase, Recording
from processes import ENABLE, run_with_torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])

pytestmark = pytest.mark.usefixtures("virtual_device")
SOURCES = pytest.mark.parametrize("source", ["native", "observer"])


def recorded(run: Callable[[], object], source: str = "native") -> Recording:
    """A recording of a function, whatever it raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
        with anymps.record(source=source) as capture:
            try:
                run()
            except (RuntimeError, TypeError, AssertionError):
                pass
    return capture.recording


def only(run: Callable[[], object], identity: str, source: str = "native") -> list[Finding]:
    """The findings of one rule."""
    return [finding for finding in find(recorded(run, source)) if finding.id == identity]


@SOURCES
def test_a_closure_is_not_the_optimizers(source: str) -> None:
    """What a closure runs is forward and backward, as Lightning runs a step; only the update is the optimizer's."""
    model = nn.Linear(4, 4).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4, device="mps")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    def run() -> None:
        optimizer.step(closure)
        optimizer.step(closure=closure)

    by_phase: dict[Phase, set[str]] = {}
    recording = recorded(run, source)
    for call in recording.calls():
        by_phase.setdefault(Phase(call.phase), set()).add(recording.signature(call.signature).operator)
    assert {"aten::linear", "aten::sum.dim_IntList"} <= by_phase[Phase.FORWARD]
    assert "aten::linear_backward" in by_phase[Phase.BACKWARD]
    assert by_phase[Phase.OPTIMIZER] == {"aten::add_.Tensor"}


class Clip(torch.autograd.Function):
    """A function whose backward reads a mask."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Clamps."""
        ctx.save_for_backward(x)
        return x.clamp(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Zeros where it was clamped."""
        (x,) = ctx.saved_tensors
        grad = grad.clone()
        below = (x < 0).nonzero()  # in the backward
        grad[below] = 0
        return grad


@SOURCES
def test_a_custom_backward_has_lines_of_its_own(source: str) -> None:
    """An operator in the user's own backward has the line there, not that of some operator of the forward."""

    def run() -> None:
        x = torch.randn(4, device="mps", requires_grad=True)
        Clip.apply(x).sum().backward()  # type: ignore[no-untyped-call]

    (wait,) = [wait for wait in recorded(run, source).waits() if wait.operator == "aten::nonzero"]
    assert wait.site.source.strip() == "below = (x < 0).nonzero()  # in the backward"
    assert wait.site.function == "backward"


@pytest.mark.skipif(RELEASE >= (2, 14), reason="from torch 2.14 on mps has this kernel")
@SOURCES
def test_a_refusal_in_the_backward_has_the_forward_line(source: str) -> None:
    """What MPS refuses on the engine's thread is put down to the line whose backward it is."""

    def run() -> None:
        x = torch.rand(1, 2, 7, 7, device="mps", requires_grad=True)
        y = nn.functional.interpolate(x, size=(14, 14), mode="bicubic", antialias=True)  # forward
        y.sum().backward()

    (finding,) = only(run, "MPS101", source)
    assert "_upsample_bicubic2d_aa_backward" in finding.what
    assert finding.site.source.strip().endswith("# forward")


def test_a_casting_copy_of_what_is_dropped() -> None:
    """MPS601 is silent where nobody reads the tensor after the copy, as where a picture is saved."""

    def run() -> None:
        x = torch.rand(3, 4, device="mps")
        x.mul(255).clamp_(0, 255).to("cpu", torch.uint8).numpy()
        y = x.mul(2)
        y.to("cpu", torch.float16)
        y.view(-1).t()
        y.zero_()
        y.sum().item()

    assert only(run, "MPS601") == []


@pytest.mark.skipif(RELEASE >= (2, 14), reason="torch 2.14 has mended it")
def test_a_casting_copy_of_what_is_read_again() -> None:
    """MPS601 has the line of the copy, once, where an operator reads the tensor later, through a view too."""

    def run() -> None:
        x = torch.rand(3, 4, device="mps")
        half = x.to("cpu", torch.float16)  # the copy
        del half
        x[1].sum()
        x.sum()

    (finding,) = only(run, "MPS601")
    assert finding.site.source.strip() == 'half = x.to("cpu", torch.float16)  # the copy'
    assert finding.count == 1


class Masked(nn.Module):
    """A layer that keeps its mask where `.to` does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = torch.tensor([1.0, 1.0, 0.0, 0.0])
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Masks."""
        return x * self.weight * self.mask.to(x.device)  # of the layer


def stepping(copied: Callable[[int], torch.Tensor], steps: int = 4) -> Callable[[], None]:
    """A training loop that copies what it is given in each step."""

    def run() -> None:
        weight = nn.Parameter(torch.ones(4, device="mps"))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for step in range(steps):
            table = copied(step)
            (weight * table.to("mps")).sum().backward()
            optimizer.step()

    return run


@SOURCES
def test_a_constant_of_a_module(source: str) -> None:
    """MPS406: two layers keep a mask each on the CPU: one finding, two copies a step."""
    model = nn.Sequential(Masked(), Masked()).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run() -> None:
        for _ in range(4):
            model(torch.ones(2, 4, device="mps")).sum().backward()
            optimizer.step()

    (finding,) = only(run, "MPS406", source)
    assert finding.site.source.strip().endswith("# of the layer")
    assert (
        finding.what
        == "`self.mask` and another one were copied to mps from the CPU in every step, and had not changed."
    )
    assert finding.per_step == 2.0


@SOURCES
def test_a_batch_that_stays(source: str) -> None:
    """MPS406: a batch that is the same in every step may as well lie on the device before the loop."""
    data = torch.rand(4)
    (finding,) = only(stepping(lambda step: data), "MPS406", source)
    assert finding.fix == "Copy `table`, or what it is taken from, to mps once, before the loop."


@SOURCES
def test_what_changes_is_no_constant(source: str) -> None:
    """MPS406 is silent for new batches, also slices of one tensor, for one that is filled anew, and for two steps."""
    tokens = torch.rand(64)
    data, array = torch.rand(4), torch.rand(4).numpy()
    kept = torch.from_numpy(array)

    def filled(step: int) -> torch.Tensor:
        array[:] = step
        return kept

    assert only(stepping(lambda step: torch.full((4,), float(step))), "MPS406", source) == []
    assert only(stepping(lambda step: data.add_(1)), "MPS406", source) == []
    assert only(stepping(filled), "MPS406", source) == []
    assert only(stepping(lambda step: tokens[step : step + 4]), "MPS406", source) == []
    assert only(stepping(lambda step: data, steps=2), "MPS406", source) == []


def package(folder: Path, text: str) -> types.ModuleType:
    """A module that lies in a folder of installed packages."""
    home = folder / "site-packages"
    home.mkdir()
    (home / "lends.py").write_text(textwrap.dedent(text), encoding="utf-8")
    module = types.ModuleType("lends")
    module.__file__ = str(home / "lends.py")
    exec(compile((home / "lends.py").read_text(), module.__file__, "exec"), module.__dict__)
    return module


@SOURCES
def test_a_refusal_in_a_package_names_the_call(source: str, tmp_path: Path) -> None:
    """MPS301 in an installed package says which line of the user's called it."""
    lends = package(tmp_path, "def move(x):\n    return x.to('mps')\n")
    line = sys._getframe().f_lineno + 1
    (finding,) = only(lambda: lends.move(torch.zeros(2, dtype=torch.float64)), "MPS301", source)
    assert finding.what.endswith(f"raised TypeError (called from test_capture_public.py:{line}).")
    assert finding.site.file.endswith("lends.py")


def test_operators_of_torchvision() -> None:
    """Those with a kernel in torchvision's wheels for macOS run on mps, nms with a wait inside; others are missing."""
    answer = run_with_torch(
        ENABLE
        + """
import anymps
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define("other(Tensor x) -> Tensor")
library.impl("nms", lambda dets, scores, threshold: scores.argsort(descending=True)[:1], "CPU")
library.impl("other", lambda x: x, "CPU")
boxes, scores = torch.rand(3, 4, device="mps"), torch.tensor([0.1, 0.9, 0.2], device="mps")
with anymps.record() as capture:
    kept = torch.ops.torchvision.nms(boxes, scores, 0.5)
print(kept, [(wait.operator, wait.wait.label) for wait in capture.recording.waits()])
try:
    torch.ops.torchvision.other(boxes)
except NotImplementedError as error:
    print(str(error)[:36])
"""
    )
    assert answer.lines == [
        "tensor([1], device='mps:0') [('torchvision::nms', 'inside operator')]",
        "The operator 'torchvision::other' is",
    ]


def test_an_extension_has_operators_of_torchvision() -> None:
    """A build of torchvision's sources has kernels for mps: they are called, and wait where they do."""
    answer = run_with_torch(
        ENABLE
        + """
import anymps
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.impl("nms", lambda dets, scores, threshold: scores.argsort(descending=True)[:2], "MPS")
boxes, scores = torch.rand(3, 4, device="mps"), torch.tensor([0.1, 0.9, 0.2], device="mps")
with anymps.record() as capture:
    kept = torch.ops.torchvision.nms(boxes, scores, 0.5)
print(kept, [(wait.operator, wait.wait.label) for wait in capture.recording.waits()])
"""
    )
    assert answer.lines == ["tensor([1, 2], device='mps:0') []"]


def test_a_function_behind_a_default_device() -> None:
    """A default device stands between an operator and torch's function, which is named all the same."""

    def run() -> None:
        torch.set_default_device("mps")
        try:
            # torch.compile, in a test before, switches the checks off for the whole process.
            torch.distributions.Normal(torch.zeros(2), torch.ones(2), validate_args=True)
        finally:
            torch.set_default_device(None)

    vias = {wait.site.via for wait in recorded(run).waits()}
    assert vias and all(via.startswith("torch/distributions/") for via in vias)


def test_numbers_in_tensors_places() -> None:
    """A number that torch passes as a tensor is recorded by an observer too, as the operator that the device gets."""
    x = torch.arange(5, device="mps")
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: x % 3, lambda: x.float().fmod(2), lambda: x ^ 1, lambda: 3 ^ x, lambda: torch.xlogy(2, x + 1),
        lambda: torch.xlogy(x, 2.0), lambda: x.float().copysign(-1.0), lambda: x.clone().remainder_(2), lambda: x + 1,
    ]  # fmt: skip
    expected = [call().cpu() for call in calls]
    named = {}
    for source in ("native", "observer"):
        found: list[torch.Tensor] = []
        recording = recorded(lambda found=found: found.extend(call() for call in calls), source)  # type: ignore[misc]
        assert [result.cpu().tolist() for result in found] == [result.tolist() for result in expected]
        named[source] = [recording.signature(call.signature).operator for call in recording.calls()]
    assert named["observer"] == named["native"]
    assert "aten::remainder.Tensor" in named["native"]
