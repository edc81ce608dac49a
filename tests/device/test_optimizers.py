"""Every torch.optim optimizer on mps: for-loop, foreach and fused give the CPU's losses, also after a reload."""

from __future__ import annotations

import copy
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
    ("SGD", {"maximize": True}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"maximize": True}),
    ("AdamW", {"amsgrad": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1}),
    ("Adadelta", {"weight_decay": 0.1}),
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", FUSED)
def test_fused_in_half_precision(kind: str, dtype: torch.dtype) -> None:
    """Fused optimizers take float16 and bfloat16 parameters."""
    p = nn.Parameter(torch.ones(4, dtype=dtype, device="mps"))
    optimizer = getattr(torch.optim, kind)([p], lr=0.5, fused=True)
    p.grad = torch.ones(4, dtype=dtype, device="mps")
    optimizer.step()
    assert dtype == p.dtype
    assert p.tolist() == pytest.approx([0.5] * 4, abs=1e-2)


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


def test_lbfgs() -> None:
    """LBFGS with a closure, also with strong Wolfe line search, gives the CPU's losses."""
    for search in (None, "strong_wolfe"):
        finals = []
        for device in ("cpu", "mps"):
            p = nn.Parameter(values(4).to(device))
            optimizer = torch.optim.LBFGS([p], lr=0.5, max_iter=5, line_search_fn=search)

            def closure(p: nn.Parameter = p, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
                optimizer.zero_grad()
                loss = ((p - 3) ** 4).sum()
                loss.backward()
                return loss

            optimizer.step(closure)
            finals.append(closure().item())
        assert finals[0] == pytest.approx(finals[1], rel=1e-3)


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


@pytest.mark.parametrize("kind", ["Adam", "SGD", "RMSprop"])
def test_states_are_on_the_device_and_can_be_reloaded(kind: str) -> None:
    """State tensors are on mps; a reloaded optimizer goes on as if nothing had happened."""
    p = nn.Parameter(values(3).to("mps"))
    optimizer = getattr(torch.optim, kind)([p], lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))

    def step(p: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        (p**2).sum().backward()
        optimizer.step()

    step(p, optimizer)
    q = nn.Parameter(p.detach().clone())
    other = getattr(torch.optim, kind)([q], lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert all(t.is_mps for t in other.state[q].values() if isinstance(t, torch.Tensor) and t.dim())
    step(p, optimizer)
    step(q, other)
    torch.testing.assert_close(q, p)


def test_schedulers() -> None:
    """Learning-rate schedules act on mps optimizers as on any."""
    p = nn.Parameter(torch.ones(1, device="mps"))
    optimizer = torch.optim.SGD([p], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    rates = []
    for _ in range(4):
        p.grad = torch.zeros(1, device="mps")
        optimizer.step()
        rates.append(schedule.get_last_lr()[0])
        schedule.step()
    assert rates == pytest.approx([1.0, 0.8535533905932737, 0.5, 0.14644660940672627])
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for loss in (1.0, 2.0, 3.0):
        plateau.step(torch.tensor(loss, device="mps"))
    assert optimizer.param_groups[0]["lr"] < 1e-2


@pytest.mark.parametrize("ema", [False, True])
def test_averaged_models(ema: bool) -> None:
    """AveragedModel (SWA and EMA) and update_bn work on mps and equal the CPU."""
    results = []
    for device in ("cpu", "mps"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(device)
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5) if ema else None, use_buffers=ema
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = values(6, 3)
        for _ in range(3):
            optimizer.zero_grad()
            model(x.to(device)).sub(1).pow(2).mean().backward()  # a steeper one makes a thousand times of a rounding
            optimizer.step()
            average.update_parameters(model)
        if not ema:
            torch.optim.swa_utils.update_bn([x[:3], x[3:]], average, device=torch.device(device))
        results.append([t.cpu() for t in average.state_dict().values()])
    torch.testing.assert_close(results[1], results[0])


def test_zero_grad_and_groups() -> None:
    """Parameter groups with options of their own, and zero_grad both ways."""
    a, b = nn.Parameter(torch.ones(2, device="mps")), nn.Parameter(torch.ones(2, device="mps"))
    optimizer = torch.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.0}], lr=1.0)
    (a + b).sum().backward()
    optimizer.step()
    assert ([0.0, 0.0], [1.0, 1.0]) == (a.tolist(), b.tolist())
    optimizer.zero_grad(set_to_none=False)
    assert [0.0, 0.0] == a.grad.tolist()
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1, device="mps"))]})
    assert 3 == len(optimizer.param_groups)
