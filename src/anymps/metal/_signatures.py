"""How to pack the arguments of a launch, found once for each signature (the types of the arguments).

A signature is the types of the arguments, those within lists included, the sizes and the casts. What is left to a
launch are addresses and numbers, which one `struct` packs: an argument after the other, each address in eight bytes,
each number and each list of tensors where a constant may begin, with empty bytes behind. Other arguments have no
packing: `bind_arguments` reads them each time.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch

from anymps.metal._arguments import CODE_OF_CAST, PADDING, Constant

Kinds = tuple[Any, ...]
"""The types of arguments; of a list or a tuple those of its items, as a tuple, and of a constant how long it is."""

TENSOR = torch.Tensor
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_ALIGNED = 16  # where a constant begins
ADDRESS = "Q"
_NO_SIZES: tuple[int, ...] = ()  # which no launch has


class Packing(NamedTuple):
    """`pack` takes the arguments one after the other, lists spread out, with addresses in the place of tensors.

    `tensors` are the places of tensors in that order, `written` of those that a kernel may write. `places` are where in
    the bytes each buffer lies, and whether it does so itself, as `anymps_rt_call` reads it.
    """

    pack: struct.Struct
    places: tuple[int, ...]
    tensors: tuple[int, ...]
    written: tuple[int, ...]


def kinds_of(arguments: Sequence[Any]) -> tuple[Kinds, list[Any]]:
    """The types of arguments, and the arguments with lists spread out, in a new list."""
    kinds: Kinds = tuple(map(type, arguments))
    if list not in kinds and tuple not in kinds and Constant not in kinds:
        return kinds, [*arguments]
    spread: list[Any] = []
    found: list[Any] = []
    for one in arguments:
        kind = type(one)
        if kind is list or kind is tuple:
            spread += one
            found.append(tuple(map(type, one)))
        elif kind is Constant:
            spread.append(one.data)
            found.append(len(one.data))
        else:
            spread.append(one)
            found.append(kind)
    return tuple(found), spread


def plain_sizes(value: Any) -> int | tuple[int, ...]:
    """Sizes that are nothing but integers, one of them as itself; no sizes for all others: `bind_arguments` judges."""
    kind = type(value)
    if kind is not tuple and kind is not list:
        return value if kind is int else _NO_SIZES
    for one in value:
        if type(one) is not int:
            return _NO_SIZES
    return value[0] if len(value) == 1 else tuple(value)


def plain_casts(value: Any) -> Hashable:
    """`arg_casts` by their content; something that no other launch has if they are none."""
    if value is None or type(value) is str:
        return value
    return tuple(value.items()) if type(value) is dict else object()


@functools.lru_cache(4096)
def packing_of(kinds: Kinds, casts: Hashable, writes: int) -> Packing | None:
    """How arguments of these types are packed; None if one of them is to be read each time.

    `writes` has a bit for each argument that the kernel may write. Tensors of a list may all be written.
    """
    default, by_index = (casts, {}) if isinstance(casts, str) else ("", dict(casts) if isinstance(casts, tuple) else {})
    forms, order = [], []
    for index, kind in enumerate(kinds):
        form = _form(kind, by_index.get(index, default))
        if form is None:
            return None
        forms.append(form)
        listed = isinstance(kind, tuple)
        order += [(one, listed or bool(writes >> index & 1)) for one in (kind if listed else (kind,))]
    tensors = [(place, written) for place, (kind, written) in enumerate(order) if kind in _TENSORS]
    written = tuple(place for place, written in tensors if written)
    return Packing(*layout(tuple(forms)), tuple(place for place, _ in tensors), written)


@functools.lru_cache(4096)
def layout(forms: tuple[str, ...]) -> tuple[struct.Struct, tuple[int, ...]]:
    """How arguments of these forms are packed, addresses as `ADDRESS`; the places of `Packing`."""
    text, places = "", []
    for form in forms:
        if form != ADDRESS:
            text += f"{-struct.calcsize(text) % _ALIGNED}x"
        places.append((struct.calcsize(text + ADDRESS) - 8) | (form != ADDRESS))
        text += form
    return struct.Struct(text), tuple(places)


def table_form(count: int) -> str:
    """How so many addresses are packed in the place of a buffer."""
    return f"{count}{ADDRESS}"


def _form(kind: Any, cast: str) -> str | None:
    """How one argument is packed, as in `struct`: a number out of its range raises."""
    if kind in _TENSORS:
        return ADDRESS
    if isinstance(kind, int):
        return f"{kind}s" if kind else None
    if isinstance(kind, tuple):
        return table_form(len(kind)) if kind and _TENSORS.issuperset(kind) else None
    if kind is int or kind is bool:
        code = CODE_OF_CAST.get(cast) if cast else "q"
    else:
        code = "f" if kind is float and not cast else None
    return f"{code}{PADDING}x" if code else None
