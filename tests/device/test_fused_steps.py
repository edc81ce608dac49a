"""Steps of fused optimizers in each dtype: the numbers of PyTorch's own Metal kernels, recorded from torch 2.13's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

MOMENTUM = "SGD with momentum"
OPTIONS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {"lr": 0.1, "amsgrad": True, "weight_decay": 0.25}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1, "maximize": True, "weight_decay": 0.25}),
    "SGD": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.25, "maximize": True}),
    MOMENTUM: (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
}
_COUNT = 40  # more than the CPU's vectors hold
_SHOWN = slice(0, 36, 10)
RECORDED: dict[tuple[str, str], list[float]] = {
    ("Adam", "float32"): [-1.1898982524871826, -0.43471530079841614, 0.20589500665664673, 0.8538322448730469],
    ("Adam", "float16"): [-1.1904296875, -0.4345703125, 0.206787109375, 0.85400390625],
    ("Adam", "bfloat16"): [-1.1796875, -0.43359375, 0.205078125, 0.8515625],
    ("AdamW", "float32"): [-1.2623814344406128, -0.5494128465652466, 0.16355586051940918, 0.9914534687995911],
    ("AdamW", "float16"): [-1.2626953125, -0.54931640625, 0.1636962890625, 0.9912109375],
    ("AdamW", "bfloat16"): [-1.265625, -0.5546875, 0.1640625, 1.0],
    ("SGD", "float32"): [-0.997580885887146, -0.3784293830394745, 0.2407219558954239, 0.8598734140396118],
    ("SGD", "float16"): [-0.9970703125, -0.378173828125, 0.24072265625, 0.8603515625],
    ("SGD", "bfloat16"): [-0.99609375, -0.37890625, 0.240234375, 0.85546875],
    (MOMENTUM, "float32"): [
        -1.5857019424438477,
        -0.6871942281723022,
        0.21131335198879242,
        1.109821081161499,
    ],
    (MOMENTUM, "float16"): [-1.5859375, -0.68701171875, 0.2113037109375, 1.109375],
    (MOMENTUM, "bfloat16"): [-1.578125, -0.6875, 0.2109375, 1.109375],
}


def steps(kind: str, dtype: str) -> list[float]:
    """Some parameters after three steps of a fused optimizer."""
    made, options = OPTIONS[kind]
    values = torch.linspace(-1.3, 1.7, _COUNT)
    p = nn.Parameter(values.to(getattr(torch, dtype)).to("mps"))
    optimizer = made([p], fused=True, **options)
    for step in range(3):
        p.grad = (values.flip(0) * (step - 0.6)).to(p.dtype).to("mps")
        optimizer.step()
    found: list[float] = p.detach().cpu()[_SHOWN].tolist()
    return found


@pytest.mark.parametrize(("kind", "dtype"), RECORDED)
def test_numbers_of_the_metal_kernels(kind: str, dtype: str) -> None:
    """Bit for bit in 16 bits; in float32 as far as the C library's powers of a beta agree."""
    expected = RECORDED[kind, dtype]
    assert steps(kind, dtype) == (pytest.approx(expected, rel=5e-7) if dtype == "float32" else expected)


def test_a_gradient_scaler_is_heeded() -> None:
    """The gradient is divided by its scale, and stays so; an overflow leaves everything as it was."""
    for dtype in (torch.float32, torch.float16):
        p = nn.Parameter(torch.ones(20, dtype=dtype, device="mps"))
        p.grad = torch.full_like(p, 8.0)
        optimizer = torch.optim.SGD([p], lr=0.25, fused=True)
        optimizer.grad_scale = torch.tensor(4.0, device="mps")  # type: ignore[attr-defined]
        optimizer.found_inf = torch.tensor(1.0, device="mps")  # type: ignore[attr-defined]
        optimizer.step()
        assert (p.tolist(), p.grad.tolist()) == ([1.0] * 20, [8.0] * 20)
        optimizer.found_inf = torch.tensor(0.0, device="mps")  # type: ignore[attr-defined]
        optimizer.step()
        assert (p.tolist(), p.grad.tolist()) == ([0.5] * 20, [2.0] * 20)
