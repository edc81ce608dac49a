"""Calls that come to kernels of torch 2.15 alone: slices, medians, sorts, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from .asked import COMPLEX, FLOATS, INTEGERS, Asked, Given, each, numbers, of

_aten = torch.ops.aten
_ALL = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
_REAL = (*FLOATS, *INTEGERS)
_ADDED = (*_ALL, torch.complex32)


def _added(index: torch.dtype, count: int) -> Callable[[torch.dtype], Iterator[Given]]:
    """A tensor, indices into its second dimension, and slices for them."""
    places = (torch.arange(count) * 7 % 3).to(index)
    return lambda dtype: iter([(numbers(dtype, 4, 3, 5), places, numbers(dtype, 4, count, 5))])


def _slices() -> tuple[Asked, ...]:
    found = []
    for index in (torch.int64, torch.int32):
        found += [
            *(
                Asked(
                    f"index_add{title}",
                    "index_add",
                    _ADDED,
                    lambda x, i, source: x.index_add(1, i, source, alpha=2),
                    _added(index, count),
                )
                for title, count in (("", 7), (", crowded", 50))
            ),
            Asked(
                "index_add, strided",
                "index_add",
                _ADDED,
                lambda x, i, source: x.mT.index_add(2, i, source.mT),
                _added(index, 7),
            ),
        ]
    return tuple(sorted(found, key=lambda one: one.title))


def _medians() -> tuple[Asked, ...]:
    return tuple(
        Asked(
            f"{name}, along a dimension",
            "median",
            _REAL,
            lambda x, name=name: getattr(torch, name)(x, 1),
            _with_nan((3, 50), (2, 5000), (3, 40, 7)),
            first=True,
        )
        for name in ("median", "nanmedian")
    )


def _with_nan(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], Iterator[Given]]:
    """Each shape as it is; floats then with a NaN, too."""

    def given(dtype: torch.dtype) -> Iterator[Given]:
        for shape in shapes:
            x = numbers(dtype, *shape)
            yield (x,)
            if dtype.is_floating_point:
                yield (torch.where(torch.arange(x.numel()).view(shape) % 11 == 3, float("nan"), x).to(dtype),)

    return given


def _along_a_line(dtype: torch.dtype) -> Iterator[Given]:
    """Signals side by side, then with channels last."""
    x = numbers(dtype, 2, 6, 50)
    for one in (x, x.mT.contiguous().mT):
        yield one, numbers(dtype, 12, 1, 5), numbers(dtype, 12)


def _lines(dtype: torch.dtype) -> Iterator[Given]:
    x = numbers(dtype, 2, 6, 90)
    for one in (x, x.mT.contiguous().mT):
        yield one, numbers(dtype, 8, 3, 5), numbers(dtype, 8)


_OTHERS: tuple[Asked, ...] = (
    Asked(
        "nn.functional.conv1d, of channels alone",
        "conv1d",
        FLOATS,
        lambda x, w, b: F.conv1d(x, w, b, padding=2, groups=6),
        _along_a_line,
    ),
    Asked(
        "nn.functional.conv1d",
        "conv3d",
        FLOATS,
        lambda x, w, b: F.conv1d(x, w, b, padding=2, stride=2, groups=2),
        _lines,
    ),
    Asked(
        "nn.functional.conv3d",
        "conv3d",
        FLOATS,
        lambda x, w, b: F.conv3d(x, w, b, padding=(1, 0, 2), stride=(1, 2, 1), groups=2),
        of((2, 4, 5, 6, 9), (6, 2, 3, 2, 3), (6,)),
    ),
    Asked("nn.functional.conv3d", "conv3d", FLOATS, F.conv3d, of((1, 3, 5, 12, 12), (4, 3, 2, 3, 3))),
)

NEWEST: tuple[Asked, ...] = (
    *_OTHERS,
    *_slices(),
    *_medians(),
    *(
        Asked(
            f"sort of one block{title}",
            "sort_block",
            _REAL,
            call,
            each((3, 20), (3, 100), (3, 300), (3, 700), (3, 1500), (3, 4000)),
            first=True,
        )
        for title, call in (
            ("", lambda x: torch.sort(x, dim=1)),
            (", falling", lambda x: torch.sort(x, dim=1, descending=True)),
            (", the largest", lambda x: torch.topk(x, 5)),
        )
    ),
)
