"""torch.func on mps: vmap, grad, jacobians, hessians, linearize and functionalize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)

from device.compare import same, values

pytestmark = pytest.mark.usefixtures("mps_device")


def scalar(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.pow(2)).sum()


def vector(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x.sum(), (x**2).sum(), x.prod()])


@pytest.mark.parametrize(
    "transform",
    [
        grad(scalar),
        grad_and_value(scalar),
        jacrev(vector),
        jacfwd(vector),
        hessian(scalar),
        jacfwd(jacrev(vector)),
        jacrev(jacfwd(vector)),
        vmap(scalar),
        vmap(grad(scalar)),
        vmap(vmap(lambda x: x * 2 + 1)),
        vmap(scalar, in_dims=1),
        vmap(lambda x: x.mean(), chunk_size=2),
        vmap(hessian(scalar)),
        vmap(lambda x: (x, x.sum(), x[None] @ x[:, None])),
        lambda x: vjp(vector, x)[1](torch.ones(3, device=x.device)),
        lambda x: jvp(vector, (x,), (torch.ones_like(x),)),
        lambda x: linearize(vector, x)[1](torch.ones_like(x)),
        functionalize(lambda x: x.clone().add_(1).view(-1)),
        functionalize(vmap(lambda x: x.clone().mul_(2))),
    ],
)
def test_transforms_equal_those_on_the_cpu(transform: Callable[[torch.Tensor], Any]) -> None:
    """Each transform, and compositions of them, give the CPU's values."""
    same(transform, values(3, 4), strides=False)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: torch.nn.functional.softmax(x, -1),
        lambda x: torch.nn.functional.layer_norm(x, (4,)),
        lambda x: x.sort().values,
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: x.cumsum(0),
        lambda x: torch.nn.functional.conv1d(x[None, None], torch.ones(1, 1, 2, device=x.device)),
        lambda x: torch.nn.functional.max_pool1d(x[None], 2),
        lambda x: torch.linalg.norm(x),
        lambda x: x[torch.tensor([0, 2], device=x.device)],
        lambda x: torch.cat([x, x.flip(0)]),
        lambda x: torch.nn.functional.gelu(x),
        lambda x: torch.outer(x, x) @ x,
        lambda x: torch.logsumexp(x, 0),
        lambda x: x.argmax(),
        lambda x: torch.nn.functional.embedding((x > 0).long(), torch.eye(2, device=x.device)),
    ],
)
def test_batching_rules_reach_mps_kernels(body: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """vmap over bodies with reductions, indexing and layers equals the CPU."""
    same(vmap(body), values(3, 4), strides=False)


def test_attention_under_vmap() -> None:
    """The mps attention kernel has no batching rule (torch 2.13): torch says so, loops over it, and is right."""

    def body(x: torch.Tensor) -> torch.Tensor:
        heads = x[None, :, None]
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)

    on_cpu = values(3, 4)
    with pytest.warns(UserWarning, match="not yet implemented the batching rule"):
        found = vmap(body)(on_cpu.to("mps"))
    torch.testing.assert_close(found.cpu(), torch.stack([body(row) for row in on_cpu]))


def test_randomness_under_vmap() -> None:
    """vmap asks how random numbers are meant: the same for all, or different ones."""
    x = torch.zeros(4, 3, device="mps")
    equal = vmap(lambda t: t + torch.rand(3, device="mps"), randomness="same")(x)
    other = vmap(lambda t: t + torch.rand(3, device="mps"), randomness="different")(x)
    assert torch.equal(equal[0], equal[1])
    assert not torch.equal(other[0], other[1])
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        vmap(lambda t: t + torch.rand(3, device="mps"))(x)
