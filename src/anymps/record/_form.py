"""What a signature has besides sizes: the layout of a call's inputs, its axes, and the numbers of a convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

_LAYOUTS: Final = frozenset(("contiguous", "transposed", "channels_last", "other"))


@dataclass(frozen=True)
class Form:
    """All of it; empty where it is the usual one.

    `layout` has a word for each of the first four inputs: `contiguous`, `transposed` (the same bytes with the axes in
    another order), `channels_last`, `other` (a slice, for instance); empty if all are contiguous. `axes` are those that
    are reduced, sorted, or indexed, counted from the first. `stride`, `dilation` and `groups` are a convolution's.
    """

    layout: Annotated[tuple[str, ...], _LAYOUTS.issuperset] = ()
    axes: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()


PLAIN: Final = Form()
