"""Calls that torch's database of operators does not make, or not so: attention, long scans, products, factors.

Each is run on the device; the first operator that a kernel computes is compared, as the device would run it with
`kernels="real"`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from anymps.kernels import KernelLibrary, Launcher

from .compare import Difference
from .launches import run_described
from .values import DTYPES

Given = tuple[torch.Tensor, ...]
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64,)
_BAGS = torch.arange(12).view(4, 3) % 5
# Indices, offsets, the bag of each index, how many each has, and no largest
_BAG_PLACES = (
    _BAGS.view(-1),
    torch.arange(0, 12, 3),
    torch.arange(12) // 3,
    torch.full((4,), 3),
    torch.empty(0, dtype=torch.int64),
)
_aten = torch.ops.aten


@dataclass(frozen=True)
class Asked:
    """What is asked of an operator: its call, and what it is given of a dtype; the first result alone if `first`."""

    title: str
    kernel: str
    dtypes: tuple[torch.dtype, ...]
    call: Callable[..., Any]
    given: Callable[[torch.dtype], Iterator[Given]]
    first: bool = False


def numbers(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """The same ones each time."""
    generator = torch.Generator().manual_seed(sum(sizes))
    if dtype == torch.bool:
        return torch.rand(sizes, generator=generator) > 0.5
    if dtype in INTEGERS:
        low = 0 if dtype == torch.uint8 else -4
        return torch.randint(low, 5, sizes, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.complex(*(torch.randn(sizes, generator=generator) for _ in range(2))).to(dtype)
    return torch.randn(sizes, generator=generator).to(dtype)


def of(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], Iterator[Given]]:
    """One call, of a tensor of each shape."""
    return lambda dtype: iter([tuple(numbers(dtype, *shape) for shape in shapes)])


def each(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], Iterator[Given]]:
    """A call of a tensor of each shape."""
    return lambda dtype: ((numbers(dtype, *shape),) for shape in shapes)


def _heads(rows: int, keys: int, widths: tuple[int, ...]) -> Callable[[torch.dtype], Iterator[Given]]:
    """Query, key and value: as many heads, fewer of keys; then with a mask of truth and one of numbers."""

    def given(dtype: torch.dtype) -> Iterator[Given]:
        for width in widths:
            q = numbers(dtype, 1, 4, rows, width)
            for heads in (4, 2):
                k, v = numbers(dtype, 1, heads, keys, width), numbers(dtype, 1, heads, keys, width) * 2
                yield q, k, v
                yield q, k, v, numbers(torch.float32, 1, 1, rows, keys) > -1
                yield q, k, v, numbers(dtype, rows, keys)

    return given


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *mask: torch.Tensor) -> torch.Tensor:
    kept = mask[0] if mask else None
    return F.scaled_dot_product_attention(q, k, v, kept, enable_gqa=q.shape[1] != k.shape[1])


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *mask: torch.Tensor) -> torch.Tensor:
    if mask:
        raise TypeError("a mask beside the causal one is refused")
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def _every_attention(title: str, given: Callable[[torch.dtype], Iterator[Given]]) -> tuple[Asked, ...]:
    name = f"scaled_dot_product_attention, {title}"
    return (
        Asked(name, "attention", FLOATS, _attention, given, first=True),
        Asked(f"{name}, causal", "attention", FLOATS, _causal, given, first=True),
    )


def _scans(title: str, call: Callable[..., Any]) -> tuple[Asked, ...]:
    """Rows that are short and many, and transposed ones."""
    dtypes = (*FLOATS, torch.int64, torch.int32)
    near_one = title == "cumprod"

    def given(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], Iterator[Given]]:
        def make(dtype: torch.dtype) -> Iterator[Given]:
            for shape in shapes:
                x = numbers(torch.float32, *shape)
                yield ((1 + x * 1e-3 if near_one else x).to(dtype) if dtype in FLOATS else x.sign().to(dtype),)

        return make

    return (
        Asked(f"{title}, many short rows", title, dtypes, lambda x: call(x, 1), given((5000, 17), (4096, 32))),
        Asked(f"{title}, transposed", title, dtypes, lambda x: call(x.t(), 1), given((70, 300))),
    )


def _log_sigmoid(dtype: torch.dtype) -> Iterator[Given]:
    """A gradient, numbers, and what the CPU's forward keeps for its backward."""
    gradient, x = numbers(dtype, 5, 7), numbers(dtype, 7, 5).t().contiguous()
    yield gradient, x, torch.exp(-x.abs())


def _with_float32(dtype: torch.dtype) -> Iterator[Given]:
    """Two tensors alike, then one that is broadcast and strided: the kernel itself converts what is not float32."""
    yield numbers(dtype, 5, 70), numbers(torch.float32, 5, 70)
    yield numbers(dtype, 70, 5).t(), numbers(torch.float32, 1, 70)


def _reduced(name: str, dim: int | None, x: torch.Tensor) -> torch.Tensor:
    """A product or a variance, over one dimension or all."""
    found: torch.Tensor = getattr(torch, name)(x) if dim is None else getattr(torch, name)(x, dim)
    return found


def _symmetric(dtype: torch.dtype) -> Iterator[Given]:
    for size in (1, 5, 32, 33, 70):
        x = numbers(dtype, 2, size, size)
        yield (x @ x.mH + size * torch.eye(size),)


ASKED: tuple[Asked, ...] = (
    *_every_attention("few queries", _heads(3, 20, (64, 96, 128, 256))),
    *_every_attention("few queries and many keys", _heads(2, 1030, (64, 96, 128, 256))),
    *_every_attention("many queries", _heads(20, 33, (32, 64, 72, 80, 96, 128, 256))),
    *_scans("cumsum", torch.cumsum),
    *_scans("cumprod", torch.cumprod),
    *(
        Asked(
            f"{name}, any dimension",
            name,
            (*FLOATS, *COMPLEX, *(INTEGERS if name == "prod" else ())),
            functools.partial(_reduced, name, dim),
            each((6, 9, 40), (3, 5, 7)),
        )
        for name in ("prod", "var", "std")
        for dim in (0, 1, 2, None)
    ),
    *(
        Asked(
            f"linalg.vector_norm, {order}",
            "norm",
            (*FLOATS, *COMPLEX),
            lambda x, order=order, dim=dim: torch.linalg.vector_norm(x, order, dim),
            each((6, 9, 40)),
        )
        for order in (1, 2, 3, 0, 0.5, float("inf"), -float("inf"))
        for dim in (0, (0, 2), None)
    ),
    *(
        Asked(
            f"pow, {power}",
            "pow_scalar",
            (*FLOATS, *COMPLEX) if power == 2.5 else (*FLOATS, *INTEGERS, *COMPLEX),
            lambda x, power=power: x**power,
            each((5, 7), (300,)),
        )
        for power in (3, 2.5)
    ),
    Asked("pow, transposed", "pow_scalar", (*FLOATS, *INTEGERS, *COMPLEX), lambda x: x.t() ** 3, each((5, 7))),
    Asked("nn.functional.elu", "elu", FLOATS, lambda x: F.elu(x, 1.3), each((5, 7), (300,))),
    Asked("nn.functional.elu, transposed", "elu", FLOATS, lambda x: F.elu(x.t(), 1.3), each((5, 7))),
    *(
        Asked(
            f"elu_backward{', of the result' * of_result}",
            "elu_backward",
            FLOATS,
            lambda g, x, of=of_result: _aten.elu_backward(g, 1.3, 1.1, 0.9, of, x),
            of((5, 7), (5, 7)),
        )
        for of_result in (False, True)
    ),
    Asked(
        "elu_backward, transposed",
        "elu_backward",
        FLOATS,
        lambda g, x: _aten.elu_backward(g.t(), 1.3, 1.1, 0.9, False, x),
        of((5, 7), (7, 5)),
    ),
    *(
        Asked(
            f"{name}, with float32",
            name,
            (*FLOATS[1:], *INTEGERS, torch.bool),
            getattr(torch, name),
            _with_float32,
        )
        for name in (
            *("add", "sub", "mul", "maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge"),
            *("hypot", "atan2", "copysign", "xlogy", "remainder", "fmod", "nextafter"),
        )
    ),
    Asked("log_sigmoid_backward", "log_sigmoid_backward", FLOATS, _aten.log_sigmoid_backward, _log_sigmoid),
    Asked("lerp, one weight", "lerp", (*FLOATS, *COMPLEX), torch.lerp, of((5, 7), (5, 7), ())),
    Asked(
        "lerp, transposed",
        "lerp",
        (*FLOATS, *COMPLEX),
        lambda a, b, w: torch.lerp(a, b.t(), w),
        of((5, 7), (7, 5), (5, 7)),
    ),
    Asked(
        "lerp, three dimensions",
        "lerp",
        (*FLOATS, *COMPLEX),
        lambda a, b, w: torch.lerp(a, b.transpose(0, 2), w),
        of((3, 5, 7), (7, 5, 3), (3, 5, 7)),
    ),
    Asked(
        "linalg.cross",
        "cross",
        (*FLOATS, *INTEGERS, *COMPLEX),
        lambda a, b: torch.linalg.cross(a, b, dim=0),
        of((3, 70), (3, 70)),
    ),
    Asked("linalg.cross, broadcast", "cross", (*FLOATS, *INTEGERS, *COMPLEX), torch.linalg.cross, of((9, 3), (1, 3))),
    Asked("linalg.cholesky_ex", "cholesky", (torch.float32, *COMPLEX), torch.linalg.cholesky_ex, _symmetric),
    Asked(
        "linalg.cholesky_ex, upper",
        "cholesky",
        (torch.float32, *COMPLEX),
        lambda x: torch.linalg.cholesky_ex(x, upper=True),
        _symmetric,
    ),
    Asked("linalg.qr", "linalg_qr", (torch.float32,), torch.linalg.qr, each((5, 5), (9, 4), (4, 9), (2, 3, 6, 4))),
    Asked(
        "nn.functional.layer_norm, long rows",
        "layer_norm",
        FLOATS,
        lambda x: F.layer_norm(x, x.shape[1:]),
        each((2, 5000), (3, 8192)),
        first=True,
    ),
    Asked(
        "nn.functional.embedding_bag, sum",
        "embedding_bag",
        (torch.float32,),
        lambda w: F.embedding_bag(_BAGS.to(w.device), w, mode="sum"),
        each((5, 7)),
        first=True,
    ),
    Asked(
        "nn.functional.embedding_bag, backward",
        "embedding_bag_backward",
        FLOATS,
        lambda g: _aten._embedding_bag_backward(
            g, *(one.to(g.device) for one in _BAG_PLACES), 5, False, 0, False, None
        ),
        of((4, 7)),
    ),
)


def compare_asked(
    library: KernelLibrary, release: tuple[int, int], names: set[str], calls: tuple[Asked, ...] = ASKED
) -> Iterator[tuple[str, str, torch.dtype, Difference]]:
    """A row of each title and dtype; what the device refuses, a Mac refuses too."""
    later = list(release) > [int(one) for one in torch.__version__.split(".")[:2]]
    launcher = Launcher(library, release)
    for title, rows in itertools.groupby(calls, lambda one: one.title):
        asked = list(rows)
        for dtype in DTYPES if not names or asked[0].kernel in names else ():
            found = Difference()
            for one in asked:
                if dtype in one.dtypes:
                    _compare(launcher, one, dtype, found, later)
            if found.elements:
                yield title, asked[0].kernel, dtype, found


def _compare(launcher: Launcher, asked: Asked, dtype: torch.dtype, found: Difference, later: bool) -> None:
    for given in asked.given(dtype):
        on_device = tuple(one.to("mps") for one in given)
        try:
            results = asked.call(*on_device)
        except (RuntimeError, NotImplementedError, TypeError):
            if not later:
                continue
            on_device = given  # the installed device lacks the operator: the CPU's result stands beside the kernel's
            try:
                results = asked.call(*given)
            except (RuntimeError, NotImplementedError, TypeError):
                continue
        by_kernel = run_described(launcher, asked.call, on_device)
        if by_kernel is None:
            continue
        results = results if isinstance(results, tuple) else (results,)
        pairs = list(zip(results, by_kernel, strict=not asked.first))
        for device, kernel in pairs[:1] if asked.first else pairs:
            found.add(device.cpu(), kernel.reshape(device.shape), (device.cpu(),))
