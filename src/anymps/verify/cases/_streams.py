"""Cases of random numbers: what each distribution draws from a seed, and the generator's state behind it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

import torch

from anymps.verify.cases._answering import Answer, Case, answered
from anymps.verify.cases._waiting import CALLS, compiled

_SIZES: Final = (1, 5, 1001)
_SEEDS: Final = (0, 42, 2**63 + 12345)
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
_VALUES: Final = 64

_FILLS: Final = {name: compiled(code, "x") for name, code in CALLS["fills"].items()}
_CALLS: Final = {name: compiled(code, "n") for name, code in CALLS["draws"].items()}


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
