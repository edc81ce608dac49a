"""What each substrate is asked to do: functions whose results are plain data, and must be alike on both.

Each runs in a process in which the device is on, with the CPU fallback, on a Mac of 16 GB.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpu.models import SMALL, make_step

CASES: dict[str, Callable[[], Any]] = {}
"""By name; a result is compared bit for bit where it is text, else within a tolerance."""


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Adds a function to the cases."""
    CASES[function.__name__] = function
    return function


def values(tensor: Tensor) -> list[float]:
    """All of them, on the CPU."""
    found: list[float] = tensor.detach().cpu().to(torch.float64).flatten().tolist()
    return found


def digest(tensor: Tensor) -> str:
    """Bits: dtype, shape, the first few elements and a digest of all."""
    here = tensor.detach().cpu().contiguous()
    data = here.view(torch.uint8).numpy().tobytes() if here.dtype != torch.bool else here.numpy().tobytes()
    first = here.flatten()[:4].tolist()
    return f"{here.dtype} {list(here.shape)} {first} {hashlib.sha256(data).hexdigest()[:16]}"


def raised(call: Callable[[], Any]) -> str:
    """The type and the first line of what a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "nothing"


def _losses(name: str, steps: int, **how: Any) -> list[float]:
    make, sizes = SMALL[name]
    # An LSTM drops between its layers by a stream that no substrate shares with a Mac (docs/limits.md).
    dropout = {"U-Net": None, "LSTM": 0.0}.get(name, 0.1)
    step = make_step(make, "mps", *sizes, dropout=dropout, **how)
    return [float(step()) for _ in range(steps)]


CASES |= {
    "losses_gpt": partial(_losses, "GPT", 20, foreach=False),
    "losses_convnet": partial(_losses, "convolutional network", 20, foreach=False),
    "losses_lstm": partial(_losses, "LSTM", 20, foreach=False),
    "losses_vit": partial(_losses, "ViT", 20, foreach=False),
    "losses_unet": partial(_losses, "U-Net", 10, foreach=False),
    "losses_default_optimizer": partial(_losses, "GPT", 10),
    "losses_foreach_optimizer": partial(_losses, "GPT", 10, foreach=True),
    "losses_fused_optimizer": partial(_losses, "GPT", 10, fused=True),
}


def _draws(draw: Callable[[torch.Generator | None], Tensor]) -> list[str]:
    """The same draw from the device's generator, again, and from one of the program's own."""
    torch.manual_seed(1234)
    own = torch.Generator(device="mps").manual_seed(99)
    return [digest(draw(None)), digest(draw(None)), digest(draw(own)), digest(torch.rand(5, device="mps"))]


DRAWS: dict[str, Callable[[torch.Generator | None], Tensor]] = {
    "rand": lambda g: torch.rand(1001, 7, device="mps", generator=g),
    "rand_half": lambda g: torch.rand(1001, device="mps", dtype=torch.float16, generator=g),
    "randn": lambda g: torch.randn(1001, 7, device="mps", generator=g),
    "randn_bfloat16": lambda g: torch.randn(1001, device="mps", dtype=torch.bfloat16, generator=g),
    "randint": lambda g: torch.randint(-5, 1000, (1001,), device="mps", generator=g),
    "randperm": lambda g: torch.randperm(777, device="mps", generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.linspace(0, 1, 1001, device="mps"), generator=g),
    "dropout": lambda g: functional.dropout(torch.ones(513, 9, device="mps"), 0.3),
    "exponential": lambda g: torch.empty(513, device="mps").exponential_(1.5, generator=g),
}
CASES |= {f"random_{name}": partial(_draws, draw) for name, draw in DRAWS.items()}


@case
def random_multinomial() -> Any:
    weights = torch.linspace(0.1, 1, 64, device="mps").repeat(8, 1)
    again = _draws(lambda g: torch.multinomial(weights, 16, replacement=True, generator=g))
    return again + _draws(lambda g: torch.multinomial(weights, 16, generator=g))


@case
def random_uniform_and_normal_in_place() -> Any:
    def draw(g: torch.Generator | None) -> Tensor:
        x = torch.empty(64, 31, device="mps")
        x[:, ::2].uniform_(-2, 3, generator=g)
        x[:, 1::2].normal_(1, 2, generator=g)
        return x

    return _draws(draw)


@case
def random_state() -> Any:
    torch.manual_seed(7)
    torch.randn(100, device="mps")
    state = torch.mps.get_rng_state()
    first = digest(torch.rand(11, device="mps"))
    torch.mps.set_rng_state(state)
    return [digest(state), first, digest(torch.rand(11, device="mps"))]


def _late(call: Callable[[], Any]) -> list[str]:
    """What a call with a bad index raises, at once or at the next wait; and that the device works on."""

    def both() -> None:
        call()
        torch.mps.synchronize()

    said = raised(both)
    return [said, str(float(torch.ones(8, device="mps").sum()))]


def _ids(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, device="mps")


def _ones(*sizes: int) -> Tensor:
    return torch.ones(*sizes, device="mps")


WRONG: dict[str, Callable[[], Any]] = {
    "embedding": lambda: functional.embedding(_ids(3, 11), _ones(10, 4)),
    "advanced": lambda: _ones(10, 4)[_ids(0, 10)],
    "put": lambda: _ones(10).__setitem__(_ids(-11), 1.0),
    "gather": lambda: _ones(3, 4).gather(1, _ids(9).expand(3, 4)),
    "scatter": lambda: _ones(3, 4).scatter_(1, _ids(9).repeat(3, 4), 1.0),
    "select": lambda: _ones(5, 2).index_select(0, _ids(7)),
    "cross_entropy": lambda: functional.cross_entropy(_ones(4, 5), _ids(0, 1, 7, 2)),
    "probability": lambda: functional.binary_cross_entropy(_ids(0.5, 1.5, -1.0, float("nan")), _ones(4)),
    "unpooled": lambda: functional.max_unpool2d(_ones(1, 1, 2, 2), _ids([[[0, 99], [5, 15]]]), 2),
}
CASES |= {f"index_{name}": partial(_late, call) for name, call in WRONG.items()}


@case
def index_in_backward() -> Any:
    table = torch.randn(10, 4, device="mps", requires_grad=True)
    good = torch.tensor([1, 1, 9], device="mps")
    functional.embedding(good, table).sum().backward()
    assert table.grad is not None
    return values(table.grad)


@case
def refused_though_cuda_computes_it() -> Any:
    x, places = torch.ones(3, 4, device="mps"), torch.tensor([0, 1], device="mps")
    return [
        raised(lambda: torch.ones(2, device="mps", dtype=torch.bool).abs()),
        raised(lambda: torch.ones(2, device="mps", dtype=torch.complex64).nansum()),
        raised(lambda: torch.mean(x, 0, out=torch.empty(4, device="mps", dtype=torch.int32))),
        raised(lambda: torch.index_select(places, 0, places, out=places)),
        raised(lambda: torch.sigmoid(x, out=torch.zeros(1, device="mps").expand(4))),
    ]


@case
def memory_of_the_mac() -> Any:
    """The Mac's limit, not the GPU's; and after it the device works on."""
    kept = []

    def fill() -> None:
        for _ in range(40):
            kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="mps"))

    said = raised(fill)
    number = len(kept)
    kept.clear()
    torch.mps.empty_cache()
    return [said, str(number), str(float(torch.ones(4, device="mps").sum()))]


@case
def memory_buffer_limit() -> Any:
    return raised(lambda: torch.empty(12 << 30, dtype=torch.uint8, device="mps"))


@case
def memory_counters() -> Any:
    torch.mps.empty_cache()
    kept, told = [], []
    for size in (1, 1000, 1 << 20, 3 << 20, 40 << 20):
        kept.append(torch.empty(size, dtype=torch.uint8, device="mps"))
        told.append(f"{torch.mps.current_allocated_memory()} {torch.mps.driver_allocated_memory()}")
    kept.clear()
    told.append(f"{torch.mps.current_allocated_memory()} {torch.mps.recommended_max_memory()}")
    return told


@case
def copies() -> Any:
    x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    there = x.to("mps", non_blocking=True)
    back = torch.empty(6, 4)
    back.copy_(there.T, non_blocking=True)
    torch.mps.synchronize()
    half = there.to("cpu", torch.float16)
    there[1:3].copy_(torch.full((2, 6), 7.0))
    bits = torch.zeros(3, dtype=torch.int64, device="mps")
    bits.copy_(torch.tensor([1.9, -2.1, 3.0]))
    return values(back) + values(half) + values(there) + values(bits)


@case
def pinned() -> Any:
    """Whatever a Mac makes of it, and a copy that follows."""
    x = torch.arange(1000.0)
    return [raised(x.pin_memory), *values(x.to("mps", non_blocking=True).sum())]


@case
def items() -> Any:
    x = torch.tensor([3.5, -1.0], device="mps")
    return [x[0].item(), float(x.min()), int(x.argmax()), bool((x > 3).any()), x.tolist(), len(x.nonzero())]


@case
def resize() -> Any:
    x = torch.arange(6.0, device="mps")
    x.resize_(2, 5)
    x[1, 1:] = 0
    y = torch.empty(0, device="mps")
    torch.add(torch.ones(3, device="mps"), 2, out=y)
    return values(x) + values(y)


@case
def views() -> Any:
    x = torch.arange(24.0, device="mps").reshape(2, 3, 4)
    y = x.transpose(0, 2)[1:, ::2]
    y.mul_(2)
    z = torch.as_strided(x, (3, 3), (4, 1), 2)
    z += 1
    x.view(-1)[5] = -3
    w = x.view(torch.int32)[0, 0, :2]
    return values(x) + values(y) + values(z.unfold(0, 2, 1)) + values(w)


@case
def autocast_float16() -> Any:
    return _autocast(torch.float16)


@case
def autocast_bfloat16() -> Any:
    return _autocast(torch.bfloat16)


def _autocast(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).to("mps")
    x = torch.randn(8, 16).to("mps")
    with torch.autocast("mps", dtype):
        y = model(x)
    y.float().square().mean().backward()
    return [str(y.dtype), *values(y), *(float(p.grad.norm()) for p in model.parameters() if p.grad is not None)]


@case
def checkpointing() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()).to("mps")
    x = torch.randn(4, 8).to("mps").requires_grad_()
    y = checkpoint(model, x, use_reentrant=False).sum()
    y.backward()
    assert x.grad is not None
    return [*values(y), *values(x.grad)]


@case
def fallbacks() -> Any:
    """Operators that run on the CPU with the fallback on, between others that do not."""
    torch.manual_seed(0)
    x = torch.randn(6, 6).to("mps")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.linalg.svdvals(x @ x.T + torch.eye(6, device="mps"))
        z = found.sqrt().sum() + torch.linalg.eigvalsh(x @ x.T).clamp(min=0).sum()
    return [*values(found), float(z)]


@case
def running_sums_in_half() -> Any:
    x = torch.linspace(0.1, 3, 200, device="mps")
    found = [x.to(dtype).cumsum(0) for dtype in (torch.float16, torch.bfloat16)]
    return [digest(each) for each in [*found, (x / 2 + 0.25).bfloat16().cumprod(0)]]


@case
def places_of_equal_values() -> Any:
    x = (torch.arange(60, device="mps") * 7 % 4).reshape(6, 10)
    return [digest(part) for found in (x.kthvalue(4), x.median(1), x.nanmedian(0)) for part in found]


@case
def batch_norm_without_training() -> Any:
    """No statistics among its results, and a gradient all the same."""
    x = torch.linspace(-1, 2, 24, device="mps").reshape(2, 3, 4).requires_grad_()
    weight = torch.tensor([1.0, 2.0, 3.0], device="mps", requires_grad=True)
    mean, var = torch.zeros(3, device="mps"), torch.full((3,), 2.0, device="mps")
    made = torch.native_batch_norm(x, weight, None, mean, var, False, 0.1, 1e-5)
    made[0].square().sum().backward()
    assert x.grad is not None
    assert weight.grad is not None
    return [str([list(part.shape) for part in made]), *values(made[0]), *values(x.grad), *values(weight.grad)]


@case
def binary_cross_entropy() -> Any:
    x = torch.tensor([0.0, 0.25, 0.5, 1.0], device="mps", requires_grad=True)
    y = torch.tensor([0.0, 1.0, 0.3, 0.9], device="mps")
    losses = functional.binary_cross_entropy(x, y, torch.tensor([1.0, 2.0, 1.0, 1.0], device="mps"), reduction="none")
    losses[:3].sum().backward()
    assert x.grad is not None
    return values(losses) + values(x.grad)
