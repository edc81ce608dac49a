"""torch.func on mps: vmap, grad, jacobians, hessians, functional_call, ensembles, linearize and functionalize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from device.compare import assert_same, same, values

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


def test_per_sample_gradients() -> None:
    """vmap(grad(functional_call)) gives one gradient per sample."""

    def per_sample(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        parameters = {name: p.detach() for name, p in model.named_parameters()}

        def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    same(per_sample, model, values(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]), strides=False)


def test_model_ensembles() -> None:
    """stack_module_state and vmap run several models at once."""

    def run(models: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
        parameters, buffers = stack_module_state(models)
        base = models[0]
        return vmap(lambda p, b: functional_call(base, (p, b), (x,)))(parameters, buffers)

    models = [nn.Linear(3, 2) for _ in range(3)]
    same(run, models, values(4, 3), strides=False)


def test_randomness_under_vmap() -> None:
    """vmap asks how random numbers are meant: the same for all, or different ones."""
    x = torch.zeros(4, 3, device="mps")
    equal = vmap(lambda t: t + torch.rand(3, device="mps"), randomness="same")(x)
    other = vmap(lambda t: t + torch.rand(3, device="mps"), randomness="different")(x)
    assert torch.equal(equal[0], equal[1])
    assert not torch.equal(other[0], other[1])
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        vmap(lambda t: t + torch.rand(3, device="mps"))(x)


def test_parametrizations_and_stateless_calls() -> None:
    """weight_norm, spectral_norm, orthogonal and functional_call with tied weights equal the CPU."""
    for wrap in (
        nn.utils.parametrizations.weight_norm,
        lambda m: nn.utils.parametrizations.orthogonal(m, orthogonal_map="cayley"),
        lambda m: nn.utils.parametrize.register_parametrization(m, "weight", nn.Tanh()),
    ):
        torch.manual_seed(0)
        module = wrap(nn.Linear(4, 4))
        same(lambda m, x: m(x), module, values(2, 4))
    torch.manual_seed(0)
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval()
    same(lambda m, x: m(x), spectral, values(2, 4))
    tied = nn.Sequential(nn.Linear(4, 4, device="mps"), nn.Linear(4, 4, device="mps"))
    tied[1].weight = tied[0].weight
    out = functional_call(tied, {"0.weight": torch.eye(4, device="mps")}, values(2, 4).to("mps"))
    assert_same(out.detach().isfinite().all(), torch.tensor(True))
