"""Reads a JSON value as the type that a dataclass or an annotation declares, and refuses any other."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from anymps.record.format import MOST


class UnfitError(Exception):
    """A value is not of the type."""


def read(kind: Any, value: Any) -> Any:
    """The JSON value as one of `kind`. Raises UnfitError if it is none.

    A `kind` is a text, truth or number, a tuple or mapping of kinds, a dataclass, a union, or one of these `Annotated`
    with conditions. Of an object, members that its dataclass lacks are passed over; those with a default may be absent.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found = read(inside[0], value)
        if all(condition(found) for condition in inside[1:]):
            return found
    elif origin in (Union, UnionType):
        for one in inside:
            with suppress(UnfitError):
                return read(one, value)
    elif origin is tuple:
        if isinstance(value, list) and inside[1:] == (...,):
            return tuple(read(inside[0], each) for each in value)
        if isinstance(value, list) and len(value) == len(inside):
            return tuple(map(read, inside, value))
    elif isinstance(value, dict):
        if origin is not None:
            return {key: read(inside[1], each) for key, each in value.items()}
        if hasattr(kind, "__dataclass_fields__"):
            found = {name: read(hint, value[name]) for name, hint in hints(kind).items() if name in value}
            with suppress(TypeError):  # one without a default is missing
                return kind(**found)
    elif type(value) is kind and (kind is not int or abs(value) <= MOST):
        return value
    raise UnfitError


@cache
def hints(kind: Any) -> dict[str, Any]:
    """The kind of each field of a dataclass."""
    return get_type_hints(kind, include_extras=True)
