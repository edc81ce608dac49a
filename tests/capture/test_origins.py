"""Where a refused tensor came from: the line that made it, and the name that holds it."""

from __future__ import annotations

import unittest
from pathlib import Path

import pytest
import torch
from torch import nn

import anymps
from anymps.device import default_device
from anymps.record import Fate
from noted import line_of

pytestmark = pytest.mark.usefixtures("virtual_device")

HERE = __file__


def test_refusal_names_the_line_that_made_the_tensor() -> None:
    """Mixed devices: the failing line, the variable, and the line and expression that made it."""
    with anymps.record() as capture:
        on_device = torch.ones(3, device="mps")
        labels = torch.arange(3.0)  # origin
        with pytest.raises(RuntimeError, match="at least two devices"):
            on_device * labels  # failure
    (refusal,) = capture.recording.refusals()
    this = test_refusal_names_the_line_that_made_the_tensor
    assert (refusal.kind.value, refusal.error) == ("device", "RuntimeError")
    assert refusal.site.line == line_of(this, "failure")
    assert (refusal.origin.file, refusal.origin.line) == (HERE, line_of(this, "origin"))
    assert (refusal.detail["name"], refusal.detail["expression"]) == ("labels", "torch.arange(3.0)")
    uses = [(use.name, use.fate) for use in capture.recording.operators() if use.name == "aten::mul.Tensor"]
    assert uses == [("aten::mul.Tensor", Fate.REFUSED)]  # one entry for one call


class Scaled(nn.Module):
    """Two tensors that `.to` does not take along: one made in one place, one in either of two."""

    def __init__(self, large: bool) -> None:
        super().__init__()
        self.scale = torch.ones(3)  # scale
        if large:
            self.shift = torch.ones(3)
        else:
            self.shift = torch.zeros(3)

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x  # scaled

    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        return self.shift + x  # shifted


class Kept(nn.Module):
    """A buffer and a parameter on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(3))
        self.weight = nn.Parameter(torch.ones(3))

    def masked(self, x: torch.Tensor) -> torch.Tensor:
        return self.mask * x

    def weighted(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


def test_refusal_tells_how_a_module_keeps_the_tensor() -> None:
    """A buffer is told from a parameter, and both from a plain attribute."""
    model, plain = Kept(), Scaled(large=True)
    with anymps.record() as capture:
        for use in (model.masked, model.weighted, plain.scaled):
            with pytest.raises(RuntimeError, match="at least two devices"):
                use(torch.ones(3, device="mps"))
    assert [refusal.detail.get("kept") for refusal in capture.recording.refusals()] == ["buffer", "parameter", None]


def test_refusal_tells_that_a_module_that_is_called_was_not_moved() -> None:
    """The parameter or the buffer is found in the module that the line calls, and in the modules in it."""
    shallow, deep = nn.Linear(3, 3), nn.Sequential(nn.Sequential(nn.Linear(3, 3)))
    norm = nn.BatchNorm1d(3, affine=False)
    with anymps.record() as capture:
        for module in (shallow, deep, norm):
            with pytest.raises(RuntimeError, match=r"on cpu|Placeholder storage"):
                module(torch.ones(2, 3, device="mps"))
    refusals = capture.recording.refusals()
    assert [refusal.detail.get("kept") for refusal in refusals] == ["parameter", "parameter", "buffer"]


ONCE = torch.Tensor([1.0, 2.0, 3.0])  # once
TWICE = torch.zeros(3)
TWICE = torch.ones(3)


def test_refusal_names_the_line_that_made_a_global() -> None:
    """A global is traced to its one assignment in the module, where the default device did not reach it."""
    with anymps.record() as capture, default_device():
        for run in (lambda x: ONCE * x, _times_once, _times_twice):
            with pytest.raises(RuntimeError, match="at least two devices"):
                run(torch.ones(3))
    _, once, twice = capture.recording.refusals()
    source = Path(HERE).read_text().splitlines()
    assert (once.origin.function, source[once.origin.line - 1]) == (
        "<module>",
        "ONCE = torch.Tensor([1.0, 2.0, 3.0])  # once",
    )
    assert (once.detail["name"], once.detail["expression"]) == ("ONCE", "torch.Tensor([1.0, 2.0, 3.0])")
    assert (once.detail["default_device"], twice.origin.known) == ("mps", False)


@pytest.mark.parametrize(("outer", "inner", "told"), [("cpu", "mps", "mps"), ("mps", "cpu", None)])
def test_a_block_of_a_default_device(outer: str, inner: str, told: str | None) -> None:
    """`with torch.device("mps")` is a default device, too, and the innermost one holds."""
    with anymps.record() as capture, torch.device(outer), torch.device(inner), pytest.raises(RuntimeError):
        torch.ones(3, device="mps") * torch.Tensor([1.0, 2.0, 3.0])
    (refusal,) = capture.recording.refusals()
    assert refusal.detail.get("default_device") == told


def test_a_generator_that_does_not_fit_the_default_device() -> None:
    """A refusal tells of the default device where it was mps, and only there."""
    with anymps.record() as capture, pytest.raises(RuntimeError, match="generator"):
        torch.randperm(3, generator=torch.Generator(), device="mps")
    with anymps.record() as other, default_device(), pytest.raises(RuntimeError, match="generator"):
        torch.randperm(3, generator=torch.Generator())
    details = [refusal.detail for recorded in (capture, other) for refusal in recorded.recording.refusals()]
    assert [detail.get("default_device") for detail in details] == [None, "mps"]


def _times_once(x: torch.Tensor) -> torch.Tensor:
    return ONCE * x


def _times_twice(x: torch.Tensor) -> torch.Tensor:
    return TWICE * x


def test_refusal_names_the_line_that_made_an_attribute() -> None:
    """`self.scale` is traced to its one assignment in the class; of several none is named."""
    model = Scaled(large=True)
    with anymps.record() as capture:
        for use in (model.scaled, model.shifted):
            with pytest.raises(RuntimeError, match="at least two devices"):
                use(torch.ones(3, device="mps"))
    scale, shift = capture.recording.refusals()
    assert (scale.site.line, scale.origin.line) == (line_of(Scaled, "scaled"), line_of(Scaled, "scale"))
    assert (scale.detail["name"], scale.detail["expression"]) == ("self.scale", "torch.ones(3)")
    assert (shift.site.line, shift.origin.known) == (line_of(Scaled, "shifted"), False)
    assert (shift.detail["name"], shift.detail["expression"]) == ("self.shift", "")


def test_refusal_follows_an_argument_to_its_caller() -> None:
    """A CPU tensor that was passed into a function is traced to the caller's line."""

    def loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return prediction - target  # failure

    with anymps.record() as capture:
        wanted = torch.zeros(3)  # origin
        with pytest.raises(RuntimeError, match="at least two devices"):
            loss(torch.ones(3, device="mps"), wanted)
    (refusal,) = capture.recording.refusals()
    this = test_refusal_follows_an_argument_to_its_caller
    assert (refusal.site.line, refusal.origin.line) == (line_of(this, "failure"), line_of(this, "origin"))


def test_refusal_follows_an_argument_without_a_name() -> None:
    """A tensor made in the call itself comes from the caller's line, through Python's own library too."""

    class Compared(unittest.TestCase):
        def check(self, first: torch.Tensor, second: torch.Tensor, msg: object) -> None:
            if not torch.equal(first, second):  # failure
                raise self.failureException

        def runTest(self) -> None:
            self.addTypeEqualityFunc(torch.Tensor, self.check)
            compare = self.assertEqual
            compare(torch.ones(3, device="mps"), torch.ones(3))  # origin

    with anymps.record() as capture, pytest.raises(RuntimeError):
        Compared().runTest()
    (refusal,) = capture.recording.refusals()
    this = test_refusal_follows_an_argument_without_a_name
    assert (refusal.site.line, refusal.origin.line) == (line_of(this, "failure"), line_of(this, "origin"))
    assert (refusal.origin.file, refusal.detail["name"]) == (HERE, "second")


def test_refused_float64_names_numpy_default() -> None:
    """float64 that came from NumPy's default dtype is told from float64 that was asked for."""
    numpy = pytest.importorskip("numpy", reason="asks about NumPy's default dtype")
    with anymps.record() as capture:
        weights = numpy.ones(3)
        with pytest.raises(TypeError, match="doesn't support float64"):
            torch.from_numpy(weights).to("mps")
        asked = numpy.ones(3, dtype="float64")
        with pytest.raises(TypeError, match="doesn't support float64"):
            torch.tensor(asked, device="mps")
    found = [(refusal.detail["name"], refusal.detail["numpy_default"]) for refusal in capture.recording.refusals()]
    assert found == [("weights", True), ("asked", False)]


def test_refused_float64_tells_of_the_dtype_that_was_asked_for() -> None:
    """A name that holds float64 is the cause, and not a tensor beside it, whatever dtype that has."""
    wide = torch.float64
    wide_tensor = torch.ones(3, dtype=torch.float64)
    with anymps.record() as capture:
        for attempt in (
            lambda: torch.ones(3, device="mps").to(wide),
            lambda: wide_tensor.to("mps", wide),
            lambda: wide_tensor.to("mps", torch.float64),
        ):
            with pytest.raises(TypeError, match="doesn't support float64"):
                attempt()
    found = [(refusal.detail.get("name"), refusal.detail.get("dtype")) for refusal in capture.recording.refusals()]
    assert found == [("wide", True), ("wide", True), ("wide_tensor", None)]


def test_refused_float64_tells_of_the_dtype_and_the_line_that_set_it() -> None:
    """The line that gave the name its dtype is the origin, in a caller of the function too."""

    def make(dtype: torch.dtype) -> torch.Tensor:
        return torch.ones(3, device="mps", dtype=dtype)

    wide = torch.float64  # origin
    with anymps.record() as capture, pytest.raises(TypeError, match="doesn't support float64"):
        make(wide)
    (refusal,) = capture.recording.refusals()
    this = test_refused_float64_tells_of_the_dtype_and_the_line_that_set_it
    assert (refusal.origin.line, refusal.detail["expression"]) == (line_of(this, "origin"), "torch.float64")


def test_refused_float64_tells_of_the_default_dtype() -> None:
    """A refusal says so where torch's default dtype was float64; no other kind of refusal does."""
    found = []
    for default in (torch.float64, torch.float32):
        torch.set_default_dtype(default)
        try:
            with anymps.record() as capture, pytest.raises(TypeError, match="doesn't support float64"):
                torch.zeros(3, dtype=torch.float64, device="mps")
            with anymps.record() as other, pytest.raises(RuntimeError, match="on the same device"):
                torch.ones(3, device="mps", dtype=torch.float32) + torch.ones(3)
        finally:
            torch.set_default_dtype(torch.float32)
        for recorded in (capture, other):
            found += [refusal.detail.get("torch_default") for refusal in recorded.recording.refusals()]
    assert found == [True, None, None, None]


def test_float64_blames_nothing_that_did_not_go_to_the_device() -> None:
    """A float64 value of a caller's line is not the cause of a `.double()` within; nor is one of a branch not taken."""
    numpy = pytest.importorskip("numpy", reason="the bystander is NumPy's")

    def widen(x: torch.Tensor) -> torch.Tensor:
        return x.double()  # failure

    def move(scale: float) -> torch.Tensor:
        weights = torch.ones(3, dtype=torch.float64)
        if scale > 2:
            weights = torch.zeros(3, dtype=torch.float64)
        return weights.to("mps")

    temperature = numpy.ones(3)
    with anymps.record() as capture:
        with pytest.raises(TypeError):
            widen(torch.ones(3, device="mps") * float(temperature[0]))
        with pytest.raises(TypeError):
            move(1.0)
    widened, moved = capture.recording.refusals()
    assert (widened.origin.known, widened.detail.get("name", "")) == (False, "")
    assert (moved.origin.known, moved.detail["name"]) == (False, "weights")
