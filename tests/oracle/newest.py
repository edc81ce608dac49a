"""Calls that come to kernels of torch 2.15 alone: slices and sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from .asked import COMPLEX, FLOATS, INTEGERS, Asked, Given, each, numbers

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


NEWEST: tuple[Asked, ...] = (
    *_slices(),
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
