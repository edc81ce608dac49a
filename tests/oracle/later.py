"""Calls that come to kernels of torch 2.15 alone, asked as those of asked.py are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from .asked import COMPLEX, FLOATS, INTEGERS, Asked, Given, each, numbers, of

_aten = torch.ops.aten
_ALL = (*FLOATS, *COMPLEX)
_LENGTHS = ((7, 50), (3, 1500), (200, 1500), (2, 5000), (2, 3, 70_000))


def _mixed(dtype: torch.dtype) -> Iterator[Given]:
    """A tensor of the dtype, and two of float32, or of int64 if it is one of integers."""
    wide = torch.complex64 if dtype.is_complex else torch.float32 if dtype.is_floating_point else torch.int64
    if dtype != wide:
        yield numbers(dtype, 5, 7), numbers(wide, 5, 7), numbers(wide, 5, 7) + 5
        yield numbers(dtype, 5, 7), numbers(wide, 7, 5).t(), numbers(wide, 7) + 5


def _mixed_pairs(dtype: torch.dtype) -> Iterator[Given]:
    """Powers of two dtypes: no number is negative."""
    return ((x.abs() + 1, y.abs()) for x, y, _ in _mixed(dtype))


def _positive(dtype: torch.dtype) -> Iterator[Given]:
    return (((x if x.is_complex() else x.abs()),) for x in (numbers(dtype, 9, 70), numbers(dtype, 5)))


def _scaled(name: str, dtypes: tuple[torch.dtype, ...]) -> tuple[Asked, ...]:
    """A product or a quotient by a factor: dense, strided, of two dtypes."""
    call = getattr(torch, name)

    def plain(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = call(x, a, b, value=3)
        return result

    return (
        Asked(name, name, dtypes, plain, of((9, 70), (9, 70), (9, 70))),
        Asked(name, name, dtypes, lambda x, a, b: plain(x, a.t(), b), of((9, 70), (70, 9), (70,))),
        Asked(
            name, name, dtypes, lambda x, a, b: plain(x, a.permute(3, 2, 1, 0), b), of((2, 3, 4, 5), (5, 4, 3, 2), (5,))
        ),
        Asked(f"{name}, of two dtypes", name, dtypes, plain, _mixed),
    )


def _softmax(kernel: str) -> tuple[Asked, ...]:
    call = getattr(F, kernel)
    return (
        Asked(f"nn.functional.{kernel}", kernel, FLOATS, lambda x: call(x, -1), each(*_LENGTHS)),
        Asked(
            f"nn.functional.{kernel}, other dimensions",
            kernel,
            FLOATS,
            lambda x: call(x, 1),
            each((3, 50, 7), (2, 9000, 3), (2, 40, 200), (1, 20_000, 40)),
        ),
        Asked(
            f"nn.functional.{kernel}, transposed", kernel, FLOATS, lambda x: call(x.t(), -1), each((50, 7), (900, 3))
        ),
    )


def _ranges(name: str, *ends: tuple[int, int, int]) -> tuple[Asked, ...]:
    """Into a row, every other place and a matrix."""
    call = getattr(torch, name)
    return tuple(
        Asked(
            f"{name}{title}",
            name,
            FLOATS,
            lambda x, between=between, laid=laid: call(*between, out=laid(x)),
            each(shape),
        )
        for title, laid, shape in (
            ("", torch.t, (35,)),
            (", every other place", lambda x: x[::2], (70,)),
            (", into a matrix", torch.t, (5, 7)),
        )
        for between in ends
    )


def _edges(kind: str) -> tuple[Asked, ...]:
    """What flows back through edges of one to three dimensions."""
    asked = []
    for dims, sizes in ((1, (37,)), (2, (4, 7)), (3, (4, 5, 6))):
        if (kind, dims) == ("replication", 1):
            continue  # kernels of torch 2.13, too, of which there are rows
        back = getattr(_aten, f"{kind}_pad{dims}d_backward")
        for pad in ((2, 1, 0, 3, 1, 1)[: 2 * dims], (-1, 2, 1, -2, 3, 0)[: 2 * dims]):
            wide = tuple(size + pad[2 * at] + pad[2 * at + 1] for at, size in enumerate(reversed(sizes)))[::-1]
            title = f"{kind}_pad{dims}d"
            asked.append(
                Asked(
                    f"{title}_backward",
                    title,
                    (*FLOATS, *COMPLEX),
                    lambda g, x, pad=pad, back=back: back(g, x, pad),
                    _paired((3, *wide), (3, *sizes)),
                )
            )
    return tuple(sorted(asked, key=lambda one: one.title))


def _paired(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], Iterator[Given]]:
    """A gradient and what it is of: plain, in a batch, and transposed."""

    def given(dtype: torch.dtype) -> Iterator[Given]:
        yield tuple(numbers(dtype, *shape) for shape in shapes)
        gradient, x = (numbers(dtype, 2, *shape) for shape in shapes)
        yield gradient, x
        yield gradient.mT.contiguous().mT, x

    return given


def _enlarged(name: str, *settings: bool) -> tuple[Asked, ...]:
    """The gradient of a smaller and of a larger image."""
    call = getattr(_aten, f"{name}_backward")
    return tuple(
        Asked(
            f"{name}_backward",
            "image gradients",
            FLOATS,
            lambda g, size=size: call(g, list(g.shape[2:]), list(size), *settings, None, None),
            each((2, 3, *shape)),
        )
        for shape, size in (((9, 14), (2, 3, 4, 6)), ((5, 7), (2, 3, 11, 9)), ((6, 8), (2, 3, 6, 4)))
    )


LATER: tuple[Asked, ...] = (
    *_enlarged("upsample_nearest2d"),
    *_enlarged("_upsample_nearest_exact2d"),
    *_enlarged("upsample_bilinear2d", False),
    *_enlarged("_upsample_bilinear2d_aa", False),
    *_enlarged("_upsample_bilinear2d_aa", True),
    *_enlarged("_upsample_bicubic2d_aa", False),
    Asked(
        "histogram, of weights, of later releases",
        "histc",
        (torch.float32,),
        lambda x, w: torch.histogram(x, 9, weight=w),
        of((70, 9), (70, 9)),
    ),
    *_scaled("addcmul", (*_ALL, *INTEGERS)),
    *_scaled("addcdiv", _ALL),
    Asked("lerp, of integers", "lerp", (torch.int64,), torch.lerp, of((5, 7), (5, 7), (5, 7))),
    Asked("pow, of two dtypes", "pow", (*FLOATS, *INTEGERS), torch.pow, _mixed_pairs),
    Asked("pow, of a number", "pow", (*FLOATS, *INTEGERS, *COMPLEX), lambda x: torch.pow(2, x), _positive),
    Asked(
        "arange",
        "arange",
        FLOATS,
        lambda x: torch.arange(2, 90, 3, out=x),
        each((30,)),
    ),
    Asked(
        "arange, of steps",
        "arange",
        FLOATS,
        lambda x: torch.arange(-2.5, 7, 0.3, out=x),
        each((32,)),
    ),
    *(
        Asked(
            f"linalg.vector_norm, {p}, {which}",
            "norms",
            FLOATS,
            lambda x, p=p, dim=dim: torch.linalg.vector_norm(x, p, dim),
            each((7, 50), (5, 5000), (9000, 3), (40, 50, 3), (64, 3000)),
        )
        for p in (0, 1, 2, float("inf"), -float("inf"))
        for which, dim in (("rows", -1), ("columns", 0), ("all", None))
    ),
    *_softmax("softmax"),
    *_softmax("log_softmax"),
    *_ranges("linspace", (-3, 8, 35), (110, -100, 35)),
    *_ranges("arange", (-2, 68, 2), (67, -3, -2))[2:],
    *_edges("reflection"),
    *_edges("replication"),
)
