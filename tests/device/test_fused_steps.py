"""Steps of fused optimizers in each dtype: the numbers of PyTorch's own Metal kernels, recorded from torch 2.13's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

DTYPES = ("float32", "float16", "bfloat16")
OPTIONS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {"lr": 0.1, "amsgrad": True, "weight_decay": 0.25}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1, "maximize": True, "weight_decay": 0.25}),
    "SGD": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.25, "maximize": True}),
    "SGD with momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
}
_COUNT = 40  # more than the CPU's vectors hold
_SHOWN = slice(0, 36, 5)
RECORDED: dict[tuple[str, str], list[float]] = {
    ("Adam", "float32"): [
        -1.1898982524871826,
        -0.8102080225944519,
        -0.43471530079841614,
        -0.07257956266403198,
        0.20589500665664673,
        0.43335196375846863,
        0.8538322448730469,
        1.2483789920806885,
    ],
    ("Adam", "float16"): [
        -1.1904296875,
        -0.81005859375,
        -0.4345703125,
        -0.072509765625,
        0.206787109375,
        0.43310546875,
        0.85400390625,
        1.2490234375,
    ],
    ("Adam", "bfloat16"): [
        -1.1796875,
        -0.8046875,
        -0.43359375,
        -0.072265625,
        0.205078125,
        0.43359375,
        0.8515625,
        1.2421875,
    ],
    ("AdamW", "float32"): [
        -1.2623814344406128,
        -0.9058972001075745,
        -0.5494128465652466,
        -0.19292841851711273,
        0.16355586051940918,
        0.6349691152572632,
        0.9914534687995911,
        1.3479379415512085,
    ],
    ("AdamW", "float16"): [
        -1.2626953125,
        -0.90625,
        -0.54931640625,
        -0.19287109375,
        0.1636962890625,
        0.63525390625,
        0.9912109375,
        1.34765625,
    ],
    ("AdamW", "bfloat16"): [-1.265625, -0.91015625, -0.5546875, -0.1923828125, 0.1640625, 0.63671875, 1.0, 1.34375],
    ("SGD", "float32"): [
        -0.997580885887146,
        -0.6880052089691162,
        -0.3784293830394745,
        -0.0688536986708641,
        0.2407219558954239,
        0.5502976775169373,
        0.8598734140396118,
        1.1694492101669312,
    ],
    ("SGD", "float16"): [
        -0.9970703125,
        -0.68798828125,
        -0.378173828125,
        -0.0687255859375,
        0.24072265625,
        0.55078125,
        0.8603515625,
        1.1689453125,
    ],
    ("SGD", "bfloat16"): [
        -0.99609375,
        -0.68359375,
        -0.37890625,
        -0.06884765625,
        0.240234375,
        0.55078125,
        0.85546875,
        1.1640625,
    ],
    ("SGD with momentum", "float32"): [
        -1.5857019424438477,
        -1.1364481449127197,
        -0.6871942281723022,
        -0.23794035613536835,
        0.21131335198879242,
        0.6605672240257263,
        1.109821081161499,
        1.5590749979019165,
    ],
    ("SGD with momentum", "float16"): [
        -1.5859375,
        -1.13671875,
        -0.68701171875,
        -0.23779296875,
        0.2113037109375,
        0.66064453125,
        1.109375,
        1.5595703125,
    ],
    ("SGD with momentum", "bfloat16"): [
        -1.578125,
        -1.140625,
        -0.6875,
        -0.23828125,
        0.2109375,
        0.66796875,
        1.109375,
        1.5625,
    ],
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
