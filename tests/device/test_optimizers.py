"""Every torch.optim optimizer on mps: for-loop, foreach and fused give the CPU's losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from device.compare import tolerance, values

pytestmark = pytest.mark.usefixtures("mps_device")

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "Adadelta": {"lr": 1.0},
    "Adagrad": {"lr": 0.1},
    "Adam": {"lr": 0.05},
    "AdamW": {"lr": 0.05},
    "Adamax": {"lr": 0.05},
    "ASGD": {"lr": 0.1},
    "NAdam": {"lr": 0.05},
    "RAdam": {"lr": 0.05},
    "RMSprop": {"lr": 0.01},
    "Rprop": {"lr": 0.01},
    "SGD": {"lr": 0.1},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"amsgrad": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("Rprop", {"step_sizes": (1e-4, 1.0)}),
]
FUSED = ("Adam", "AdamW", "SGD")


def train(kind: str, device: str, steps: int = 4, **options: Any) -> list[float]:
    """The losses of a few steps of a small net, the same at the start every time."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3)).to(device)
    optimizer = getattr(torch.optim, kind)(model.parameters(), **{**OPTIMIZERS.get(kind, {}), **options})
    x, y = values(10, 6).to(device), (torch.arange(10) % 3).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def close(expected: list[float], found: list[float]) -> None:
    torch.testing.assert_close(
        torch.tensor(found), torch.tensor(expected), **(tolerance(torch.float32) or {"rtol": 1e-4, "atol": 1e-5})
    )


@pytest.mark.parametrize("foreach", [None, True])
@pytest.mark.parametrize("kind", list(OPTIMIZERS))
def test_losses_equal_those_of_the_cpu(kind: str, foreach: bool | None) -> None:
    """For-loop and foreach implementations give the CPU's losses."""
    close(train(kind, "cpu"), train(kind, "mps", foreach=foreach))


@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=str)
def test_options_act_as_on_the_cpu(kind: str, options: dict[str, Any]) -> None:
    """Momentum, amsgrad, weight decay and the others give the CPU's losses."""
    close(train(kind, "cpu", **options), train(kind, "mps", **options))


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"maximize": True}], ids=str)
@pytest.mark.parametrize("kind", FUSED)
def test_fused_implementations(kind: str, options: dict[str, Any]) -> None:
    """fused=True of Adam, AdamW and SGD gives the CPU's losses."""
    close(train(kind, "cpu", **options), train(kind, "mps", fused=True, **options))
    if kind != "SGD":
        close(train(kind, "cpu", amsgrad=True), train(kind, "mps", fused=True, amsgrad=True))
    else:
        close(train(kind, "cpu", momentum=0.9), train(kind, "mps", fused=True, momentum=0.9))


def test_fused_with_a_tensor_learning_rate() -> None:
    """The learning rate may be a tensor, on the CPU or on mps."""
    for lr in (torch.tensor(0.05), torch.tensor(0.05, device="mps")):
        close(train("Adam", "cpu"), train("Adam", "mps", fused=True, lr=lr))
    close(train("SGD", "cpu"), train("SGD", "mps", lr=torch.tensor(0.1)))


def test_fused_where_there_is_no_kernel() -> None:
    """Adagrad has no fused kernel on mps: torch refuses when it is made or at the step."""
    p = nn.Parameter(torch.ones(2, device="mps"))
    p.grad = torch.ones(2, device="mps")
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.optim.Adagrad([p], fused=True).step()


def test_the_default_is_the_for_loop() -> None:
    """mps is not among the devices for which foreach is the default."""
    assert "mps" not in torch.utils._foreach_utils._get_foreach_kernels_supported_devices()
    assert "mps" in torch.utils._foreach_utils._get_fused_kernels_supported_devices()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_sparse_adam_with_sparse_gradients() -> None:
    """SparseAdam, SGD and Adagrad take the sparse gradients of an embedding."""
    for make in (
        lambda p: torch.optim.SparseAdam(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
    ):
        weights = []
        for device in ("cpu", "mps"):
            table = nn.Embedding(5, 3, sparse=True)
            with torch.no_grad():
                table.weight.copy_(values(5, 3))
            table.to(device)
            optimizer = make(list(table.parameters()))
            for _ in range(2):
                optimizer.zero_grad()
                table(torch.tensor([0, 2, 2], device=device)).pow(2).sum().backward()
                assert table.weight.grad.is_sparse
                optimizer.step()
            weights.append(table.weight.detach().cpu())
        torch.testing.assert_close(weights[1], weights[0])
