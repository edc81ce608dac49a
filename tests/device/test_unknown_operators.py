"""Operators that torch does not ship: without a kernel, with a CPU kernel only, composite, and with one for MPS."""

from __future__ import annotations

import pytest
import torch

from anymps.rules.texts import missing_operator
from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

library = torch.library.Library("anymps_probe", "DEF")
library.define("nowhere(Tensor x) -> Tensor")
library.define("on_cpu(Tensor x) -> Tensor")
library.define("composite(Tensor x) -> Tensor")
library.define("on_mps(Tensor x) -> Tensor")
library.impl("on_cpu", lambda x: x + 1, "CPU")
library.impl("composite", lambda x: (x * x).sum(), "CompositeImplicitAutograd")
library.impl("on_mps", lambda x: x + 2, "CPU")
library.impl("on_mps", lambda x: x * 2, "MPS")
ops = torch.ops.anymps_probe


@pytest.mark.parametrize("name", ["nowhere", "on_cpu"])
def test_without_a_kernel_for_mps(name: str) -> None:
    """An operator without an MPS kernel raises the backend's text with its own name."""
    text = missing_operator(f"anymps_probe::{name}", str(torch.version.git_version)).text
    assert text_of(NotImplementedError, getattr(ops, name), torch.ones(2, device="mps")) == text


def test_a_composite_operator_works() -> None:
    """An operator made of others needs no kernel, and its gradient flows."""
    x = values(3)
    there = x.to("mps").requires_grad_()
    y = ops.composite(there)
    y.backward()
    assert_same(y.detach(), (x * x).sum())
    assert_same(there.grad, 2 * x)


def test_a_kernel_registered_for_mps_is_used() -> None:
    """`impl(..., "MPS")` decides on mps, the CPU's kernel on the CPU."""
    assert_same(ops.on_mps(torch.ones(2, device="mps")), torch.full((2,), 2.0))
    assert torch.equal(ops.on_mps(torch.ones(2)), torch.full((2,), 3.0))


def test_custom_op_by_device() -> None:
    """torch.library.custom_op for device type mps runs there, and is missing elsewhere."""

    @torch.library.custom_op("anymps_probe::doubled", mutates_args=(), device_types="mps")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert_same(doubled(torch.ones(2, device="mps")), torch.full((2,), 2.0))
    with pytest.raises(NotImplementedError):
        doubled(torch.ones(2))


def test_a_kernel_given_later() -> None:
    """A kernel registered after the first refusal is found."""
    library.define("later(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError):
        ops.later(torch.ones(1, device="mps"))
    library.impl("later", lambda x: x - 1, "MPS")
    assert_same(ops.later(torch.ones(2, device="mps")), torch.zeros(2))
