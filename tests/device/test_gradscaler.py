"""torch.amp.GradScaler("mps"): scaling, unscaling, skipped steps, growth, fused optimizers, wrong devices."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anymps.rules.texts import scaler_argument
from device.compare import assert_same, text_of

pytestmark = pytest.mark.usefixtures("mps_device")


def parameter(*data: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(data, device="mps"))


def test_a_step_is_taken_with_unscaled_gradients() -> None:
    """scale, backward, step and update move the parameter as without a scaler."""
    p = parameter(1.0, 2.0)
    optimizer = torch.optim.SGD([p], lr=0.5)
    scaler = torch.amp.GradScaler("mps", init_scale=1024.0)
    loss = (p * torch.tensor([1.0, 3.0], device="mps")).sum()
    scaled = scaler.scale(loss)
    assert 1024.0 * loss.item() == scaled.item()
    scaled.backward()
    assert_same(p.grad, torch.tensor([1024.0, 3072.0]))
    scaler.step(optimizer)
    scaler.update()
    assert_same(p.detach(), torch.tensor([0.5, 0.5]))
    assert 1024.0 == scaler.get_scale()


def test_unscale_divides_in_place_for_clipping() -> None:
    """unscale_ gives true gradients; a second unscale_ is refused; step does not unscale again."""
    p = parameter(1.0)
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler = torch.amp.GradScaler("mps", init_scale=8.0)
    scaler.scale(p * 3).backward()
    scaler.unscale_(optimizer)
    assert_same(p.grad, torch.tensor([3.0]))
    assert text_of(RuntimeError, scaler.unscale_, optimizer) == (
        "unscale_() has already been called on this optimizer since the last update()."
    )
    nn.utils.clip_grad_norm_([p], 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert p.item() == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), -float("inf")])
def test_a_step_with_an_overflow_is_skipped(bad: float) -> None:
    """A gradient that is not finite skips the step and halves the scale."""
    p, q = parameter(1.0, 2.0), parameter(3.0)
    optimizer = torch.optim.Adam([p, q])
    scaler = torch.amp.GradScaler("mps", init_scale=4.0)
    scaler.scale((p * torch.tensor([1.0, bad], device="mps")).sum() + q.sum()).backward()
    assert scaler.step(optimizer) is None
    scaler.update()
    assert_same(p.detach(), torch.tensor([1.0, 2.0]))
    assert_same(q.detach(), torch.tensor([3.0]))
    assert 2.0 == scaler.get_scale()


def test_the_scale_grows_after_enough_good_steps() -> None:
    """growth_interval good steps double the scale; an overflow starts counting anew."""
    p = parameter(1.0)
    optimizer = torch.optim.SGD([p], lr=0.0)
    scaler = torch.amp.GradScaler("mps", init_scale=2.0, growth_interval=2, growth_factor=3.0, backoff_factor=0.25)
    scales = []
    for factor in (1.0, 1.0, 1.0, float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale(p * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert [2.0, 6.0, 6.0, 1.5, 1.5, 4.5] == scales
    scaler.update(16.0)
    assert 16.0 == scaler.get_scale()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_fused_optimizers_take_the_scale_themselves(kind: type[torch.optim.Optimizer]) -> None:
    """A fused optimizer gets grad_scale and found_inf, and skips an overflow without reading back."""
    p, q = parameter(1.0, 2.0), parameter(1.0, 2.0)
    fused, plain = kind([p], lr=0.1, fused=True), kind([q], lr=0.1)
    scaler = torch.amp.GradScaler("mps", init_scale=64.0)
    for factor in (1.0, float("inf"), 2.0):
        fused.zero_grad()
        plain.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(fused)
        scaler.update()
        if factor != float("inf"):
            (q * factor).sum().backward()
            plain.step()
    torch.testing.assert_close(q, p)
    assert 32.0 == scaler.get_scale()


def test_float16_gradients_are_refused() -> None:
    """Gradients in float16 cannot be unscaled, as everywhere."""
    p = nn.Parameter(torch.ones(2, dtype=torch.float16, device="mps"))
    optimizer = torch.optim.SGD([p])
    scaler = torch.amp.GradScaler("mps", init_scale=2.0)
    scaler.scale(p.float().sum()).backward()
    assert text_of(ValueError, scaler.unscale_, optimizer) == "Attempting to unscale FP16 gradients."


def test_wrong_devices_are_named() -> None:
    """The scaler's kernels say which tensor is not on mps."""
    gradients, there, here = [torch.ones(2, device="mps")], torch.ones(1, device="mps"), torch.ones(1)
    check = torch._amp_foreach_non_finite_check_and_unscale_
    assert text_of(RuntimeError, check, gradients, here, there) == scaler_argument("found_inf").text
    assert text_of(RuntimeError, check, gradients, there, here) == scaler_argument("inv_scale").text
    text = text_of(RuntimeError, check, [*gradients, torch.ones(2)], there, there)
    assert text == "one of scaled_grads was not a MPS tensor."
