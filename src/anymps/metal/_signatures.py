"""How to pack the arguments of a launch, found once for each signature (the types of the arguments).

A signature is the types of the arguments, those within lists included, the sizes and the casts. What is left to a
launch are addresses and numbers, which one `struct` packs: an argument after the other, each address in eight bytes,
each number and each list where a constant may begin, with empty bytes behind.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from anymps.metal._arguments import CODE_OF_CAST, NARROW_CASTS, PADDING, narrow_bytes

Kinds = tuple[Any, ...]
"""The types of arguments; of a list or a tuple those of its items, as a tuple."""

TENSOR = torch.Tensor
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_SCALARS = {  # of tensors without dimensions on the CPU, whose bytes are the constant
    **dict.fromkeys((torch.bool, torch.uint8, torch.int8), 1),
    **dict.fromkeys((torch.int16, torch.float16, torch.bfloat16), 2),
    **dict.fromkeys((torch.int32, torch.float32), 4),
    torch.int64: 8,
}
_WHOLE, _NUMBERS = frozenset({int, bool}), frozenset({int, bool, float})
_ALIGNED = 16  # where a constant begins
_ADDRESS = "Q"
_NO_SIZES: tuple[int, ...] = ()  # which no launch has


class Packing(NamedTuple):
    """`pack` takes the arguments one after the other, lists spread out, once these are replaced.

    By its place in that order, each of `tensors` becomes an address, and each of `narrow` the bytes of its cast.
    `places` are where in the bytes each buffer lies, and whether it does so itself, as `anymps_rt_repeat` reads it.
    """

    pack: struct.Struct
    places: tuple[int, ...]
    tensors: tuple[int, ...]
    narrow: tuple[tuple[int, str], ...]


def kinds_of(arguments: Sequence[Any]) -> tuple[Kinds, list[Any]]:
    """The types of arguments, and the arguments with lists spread out, in a new list."""
    kinds: Kinds = tuple(map(type, arguments))
    if list not in kinds and tuple not in kinds:
        return kinds, [*arguments]
    spread: list[Any] = []
    found: list[Any] = []
    for one in arguments:
        kind = type(one)
        if kind is list or kind is tuple:
            spread += one
            found.append(tuple(map(type, one)))
        else:
            spread.append(one)
            found.append(kind)
    return tuple(found), spread


def with_scalars(arguments: Sequence[Any]) -> tuple[Kinds, list[Any]] | None:
    """The same where tensors without dimensions on the CPU are among them: by their dtype, and as their bytes.

    None if there are none, or if `bind_arguments` has to judge one.
    """
    if not any(type(one) is TENSOR and not one.is_mps for one in arguments):
        return None
    given: list[Any] = []
    kinds: list[Any] = []
    try:
        for one in arguments:
            dtype = one.dtype if type(one) is TENSOR and not one.is_mps else None
            if dtype is None:
                (kind,), values = kinds_of((one,))
                kinds.append(kind)
                given += values
            elif dtype in _SCALARS and one.dim() == 0 and one.device.type == "cpu" and not one.is_neg():
                kinds.append(dtype)
                given.append(ctypes.string_at(one.data_ptr(), _SCALARS[dtype]))
            else:
                return None
    except RuntimeError:  # without memory, as within a transformation of functions
        return None
    return tuple(kinds), given


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
def packing_of(kinds: Kinds, casts: Hashable) -> Packing | None:
    """How arguments of these types are packed; None if one of them needs a second look each time."""
    default, by_index = (casts, {}) if isinstance(casts, str) else ("", _mapping(casts))
    forms = [_form(kind, by_index.get(index, default)) for index, kind in enumerate(kinds)]
    text, places = "", []
    for form in forms:
        if form is None:
            return None
        if form != _ADDRESS:
            text += f"{-struct.calcsize(text) % _ALIGNED}x"
        places.append((struct.calcsize(text + _ADDRESS) - 8) | (form != _ADDRESS))
        text += form
    order = tuple(_spread(kinds))
    tensors = tuple(place for place, (_, kind) in enumerate(order) if kind in _TENSORS)
    cast_of = [(place, by_index.get(index, default), kind) for place, (index, kind) in enumerate(order)]
    narrow = tuple((place, cast) for place, cast, kind in cast_of if cast in NARROW_CASTS and kind in _NUMBERS)
    return Packing(struct.Struct(text), tuple(places), tensors, narrow)


def packed_places(kinds: Kinds) -> Iterator[tuple[int, Any]]:
    """The index of the argument, and the type, of all that `pack` takes."""
    return _spread(kinds)


def narrowed(value: float, cast: str) -> bytes:
    """A number as one of two bytes; those of late are remembered."""
    return _narrowed(value if isinstance(value, int) else struct.pack("d", value), cast)


@functools.lru_cache(1024)
def _narrowed(value: int | bytes, cast: str) -> bytes:
    """By the bits of a float, since zero is equal to its negative."""
    return narrow_bytes(value if isinstance(value, int) else struct.unpack("d", value)[0], cast)


def _mapping(casts: Hashable) -> Mapping[int, str]:
    return dict(casts) if isinstance(casts, tuple) else {}


def _spread(kinds: Kinds) -> Iterator[tuple[int, Any]]:
    for index, kind in enumerate(kinds):
        for one in kind if isinstance(kind, tuple) else (kind,):
            yield index, one


def _form(kind: Any, cast: str) -> str | None:
    """How one argument is packed."""
    if not isinstance(kind, tuple):
        if kind in _TENSORS:
            return _ADDRESS
        if kind in _SCALARS:
            return f"{_SCALARS[kind]}s{PADDING}x"
        if kind in _NUMBERS and cast in NARROW_CASTS:
            return f"2s{PADDING}x"
        code = _code(kind, cast)
        return f"{code}{PADDING}x" if code else None
    if not kind:
        return None
    if _TENSORS.issuperset(kind):
        return f"{len(kind)}{_ADDRESS}"
    code = _code(kind[0], cast)
    if code is None or not (_WHOLE if kind[0] in _WHOLE else _NUMBERS).issuperset(kind):
        return None
    return f"{len(kind)}{code}{PADDING}x"


def _code(kind: Any, cast: str) -> str | None:
    """How a number is packed, as in `struct`: out of its range it raises."""
    if kind in _WHOLE:
        return CODE_OF_CAST.get(cast) if cast else "q"
    return "f" if kind is float and not cast else None
