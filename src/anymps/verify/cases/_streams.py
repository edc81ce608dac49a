"""Cases of random numbers: what each distribution draws from a seed, and the generator's state behind it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

import torch

from anymps.verify.cases._answering import Answer, Case, answered

_SIZES: Final = (1, 5, 1001)
_SEEDS: Final = (0, 42, 2**63 + 12345)
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
_VALUES: Final = 64

_FILLS: Final[dict[str, Callable[[torch.Tensor], Any]]] = {
    "uniform": lambda x: x.uniform_(),
    "uniform from -2.3 to 4.8": lambda x: x.uniform_(-2.3, 4.8),
    "normal": lambda x: x.normal_(),
    "normal of mean 1.7": lambda x: x.normal_(1.7, 0.3),
    "log_normal": lambda x: x.log_normal_(0.7, 1.3),
    "exponential": lambda x: x.exponential_(1.7),
    "cauchy": lambda x: x.cauchy_(0.7, 1.3),
    "geometric": lambda x: x.geometric_(0.3),
    "bernoulli": lambda x: x.bernoulli_(0.3),
    "bernoulli of a tensor": lambda x: x.bernoulli_(torch.full(x.shape, 0.25, device="mps")),
    "random": lambda x: x.random_(),
    "random from 3 to 100": lambda x: x.random_(3, 100),
}
_CALLS: Final[dict[str, Callable[[int], Any]]] = {
    "rand": lambda n: torch.rand(n, device="mps"),
    "rand of half": lambda n: torch.rand(n, device="mps", dtype=torch.float16),
    "randn": lambda n: torch.randn(n, device="mps"),
    "randint": lambda n: torch.randint(1000, (n,), device="mps"),
    "randperm": lambda n: torch.randperm(n, device="mps"),
    "multinomial": lambda n: torch.multinomial(torch.ones(n, device="mps"), n),
    "multinomial with replacement": lambda n: torch.multinomial(torch.ones(n, device="mps"), n, replacement=True),
    "dropout": lambda n: torch.nn.functional.dropout(torch.ones(n, device="mps"), 0.3),
    "native_dropout": lambda n: torch.native_dropout(torch.ones(n, device="mps"), 0.3, True),
    "standard_gamma": lambda n: torch._standard_gamma(torch.full((n,), 2.5, device="mps")),
    "poisson": lambda n: torch.poisson(torch.full((n,), 3.5, device="mps")),
    "a generator of its own": lambda n: torch.rand(
        n, device="mps", generator=torch.Generator(device="mps").manual_seed(7)
    ),
    "two draws": lambda n: (torch.rand(n, device="mps"), torch.randn(n, device="mps")),
}


def stream_cases() -> list[Case]:
    """All cases; each over three seeds and three sizes."""
    found = [
        Case(f"fill {title} {str(dtype).removeprefix('torch.')}", functools.partial(_filled, fill, dtype))
        for title, fill in _FILLS.items()
        for dtype in _DTYPES
    ]
    return found + [Case(f"call {title}", functools.partial(_drawn, call)) for title, call in _CALLS.items()]


def _filled(fill: Callable[[torch.Tensor], Any], dtype: torch.dtype) -> Answer:
    return _drawn(lambda size: fill(torch.zeros(size, dtype=dtype, device="mps")))


def _drawn(call: Callable[[int], Any]) -> Answer:
    samples = []
    for size, seed in itertools.product(_SIZES, _SEEDS):
        torch.mps.manual_seed(seed)

        def draw(size: int = size) -> Any:
            return call(size), torch.mps.get_rng_state()

        samples.append(answered(draw, _VALUES))
    return {"samples": samples}
