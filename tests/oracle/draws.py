"""Random numbers: the device's generator beside the kernels, from the same seed and offset.

Source: the arguments that the kernels of torch 2.13's wheel describe; a thread draws four numbers from a block of
Philox, two of 64 bits, and the samplers one. The state of the generator is seven words, the seed and the offset.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from anymps.kernels import KernelLibrary
from anymps.kernels.launches import NAMES

from .compare import Difference
from .values import DTYPES

_SIZES = (1, 5, 1001)
_SEEDS = (0, 42, 2**63 + 12345)


@dataclass(frozen=True)
class Draw:
    """A distribution: its kernel, how the device draws into a tensor, and what the kernel is given.

    Without `params` it is a sampler, which takes parameters as a tensor of the results' type, one a number.
    """

    title: str
    kernel: str
    call: Callable[[torch.Tensor], torch.Tensor]
    params: tuple[float, ...] = ()


DRAWS: tuple[Draw, ...] = (
    Draw("uniform", "uniform_dist", lambda x: x.uniform_(), (0.0, 1.0)),
    Draw("uniform, from -2.3 to 4.8", "uniform_dist", lambda x: x.uniform_(-2.3, 4.8), (-2.3, 4.8)),
    Draw("normal", "normal", lambda x: x.normal_(), (0.0, 1.0)),
    Draw("normal, mean 1.7, std 0.3", "normal", lambda x: x.normal_(1.7, 0.3), (1.7, 0.3)),
    Draw("log_normal", "log_normal", lambda x: x.log_normal_(0.7, 1.3), (0.7, 1.3)),
    Draw("exponential", "exponential", lambda x: x.exponential_(1.7), (1.7, 0.0)),
    Draw("cauchy", "cauchy", lambda x: x.cauchy_(0.7, 1.3), (0.7, 1.3)),
    Draw("geometric", "geometric", lambda x: x.geometric_(0.3), (math.log1p(-0.3), 0.0)),
    Draw("bernoulli", "bernoulli_scalar", lambda x: x.bernoulli_(0.3), (0.3, 0.0)),
    Draw("random", "random_int", lambda x: x.random_(3, 100), (3, 97)),
    Draw("standard_gamma", "standard_gamma", torch._standard_gamma),
)


Pair = tuple[torch.Tensor, torch.Tensor]


def _generator() -> torch.Generator:
    found: torch.Generator = torch.mps._get_default_mps_generator()
    return found


def _state() -> list[int]:
    """The seed and the offset."""
    return list(struct.unpack("<7IqQ", bytes(_generator().get_state().tolist()))[7:])


def _bernoulli_tensor(library: KernelLibrary, name: str, x: torch.Tensor) -> list[Pair]:
    p = torch.linspace(0, 1, x.numel()).to("mps")
    state, out = _state(), torch.zeros_like(x)
    library[name](out, p, state, x.numel(), None, threads=-(-x.numel() // 4), error_buf_idx=4)
    return [(x.bernoulli_(p), out)]


def _dropout(library: KernelLibrary, name: str, x: torch.Tensor) -> list[Pair]:
    x = torch.linspace(-3, 5, x.numel()).to(x.dtype).to("mps")
    state, out, mask = _state(), torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    library[name](out, mask, x, [0.7, 1 / 0.7], state, x.numel(), threads=-(-x.numel() // 4))
    return list(zip(torch.native_dropout(x, 0.3, True), (out, mask), strict=True))


def _dropout_backward(library: KernelLibrary, name: str, x: torch.Tensor) -> list[Pair]:
    x = torch.linspace(-3, 5, x.numel()).to(x.dtype).to("mps")
    mask, out = x.real > 0, torch.zeros_like(x)
    library[name](out, x, mask, 1 / 0.7, threads=x.numel())
    return [(torch.ops.aten.native_dropout_backward(x, mask, 1 / 0.7), out)]


def _dirichlet(library: KernelLibrary, name: str, x: torch.Tensor) -> list[Pair]:
    rows = torch.linspace(0.3, 5.0, 2 * x.numel()).to(x.dtype).view(2, -1).to("mps")
    state, out = _state(), torch.zeros_like(rows)
    columns = rows.shape[1]
    width = min(columns, 1024)
    library[name](out, rows, state, columns, threads=2 * width, group_size=width)
    return [(torch._sample_dirichlet(rows), out)]


def _randperm(library: KernelLibrary, name: str, x: torch.Tensor) -> list[Pair]:
    """Of few numbers, which one group of threads shuffles."""
    count = min(x.numel(), 384)
    state, out = _state(), torch.zeros(count, dtype=x.dtype, device="mps")
    library[name](out, state, count, threads=256, group_size=256)
    return [(torch.randperm(count, dtype=x.dtype, device="mps"), out)]


OTHERS: dict[str, tuple[str, Callable[[KernelLibrary, str, torch.Tensor], list[Pair]]]] = {
    "randperm, up to 384": ("randperm_small", _randperm),
    "_sample_dirichlet": ("standard_dirichlet", _dirichlet),
    "bernoulli, by a tensor": ("bernoulli_tensor", _bernoulli_tensor),
    "native_dropout": ("dropout_fwd", _dropout),
    "native_dropout_backward": ("dropout_bwd", _dropout_backward),
}


def compare_draws(library: KernelLibrary, names: set[str]) -> Iterator[tuple[str, str, torch.dtype, Difference]]:
    """Each distribution and dtype that the device draws and that has a kernel."""
    asked: list[tuple[str, str, Callable[[KernelLibrary, str, torch.Tensor], list[Pair]]]] = [
        *((draw.title, draw.kernel, functools.partial(_drawn, draw)) for draw in DRAWS),
        *((title, kernel, pairs) for title, (kernel, pairs) in OTHERS.items()),
    ]
    for title, kernel, pairs in asked:
        for dtype in DTYPES if not names or kernel in names else ():
            name = f"{kernel}_{NAMES[dtype]}"
            found = Difference()
            for size, seed in itertools.product(_SIZES, _SEEDS) if name in library else ():
                torch.mps.manual_seed(seed)
                torch.empty(9, device="mps").uniform_()  # the offset is not 0
                try:
                    for device, by_kernel in pairs(library, name, torch.zeros(size, dtype=dtype, device="mps")):
                        found.add(device.cpu(), by_kernel.cpu(), (device.cpu(),))
                except (RuntimeError, NotImplementedError, TypeError):
                    continue  # refused on a Mac, too
            if found.elements:
                yield title, kernel, dtype, found


def _drawn(draw: Draw, library: KernelLibrary, name: str, x: torch.Tensor) -> list[Pair]:
    given: Any = list(draw.params) or torch.linspace(0.1, 7.0, x.numel()).to(x.dtype).to("mps")
    state, out, numel = _state(), torch.zeros_like(x), x.numel()
    result = draw.call(x if draw.params else given)
    if draw.params:
        each = 2 if draw.kernel == "random_int" and x.element_size() == 8 else 4
        library[name](out, given, state, numel, threads=-(-numel // each))
    else:
        library[name](out, given, state, threads=numel)
    return [(result, out)]
