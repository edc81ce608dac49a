"""Reads a JSON value as the type that a dataclass or an annotation declares, and refuses any other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from anymps.record.format import MOST

Read = Callable[[Any], Any]


class UnfitError(Exception):
    """A value is not of the type."""


@cache
def reader(kind: Any) -> Read:
    """What turns a JSON value into one of `kind`, or raises UnfitError.

    A `kind` is a text, truth or number, a tuple or mapping of kinds, a dataclass, a union, or one of these `Annotated`
    with conditions. Of an object, members that its dataclass lacks are passed over; those with a default may be absent.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _with_conditions(reader(inside[0]), inside[1:])
    if origin in (Union, UnionType):
        return _any_of(tuple(map(reader, inside)))
    if origin is tuple:
        return _repeated(reader(inside[0])) if inside[1:] == (...,) else _row(tuple(map(reader, inside)))
    if origin is not None:  # a mapping from texts
        return _mapping(reader(inside[1]))
    if is_dataclass(kind):
        return _object(kind)
    return _plain(kind)


def _plain(kind: Any) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind or (kind is int and abs(value) > MOST):
            raise UnfitError
        return value

    return read


def _with_conditions(inner: Read, conditions: tuple[Callable[[Any], bool], ...]) -> Read:
    def read(value: Any) -> Any:
        found = inner(value)
        if not all(condition(found) for condition in conditions):
            raise UnfitError
        return found

    return read


def _any_of(inner: tuple[Read, ...]) -> Read:
    def read(value: Any) -> Any:
        for one in inner:
            with suppress(UnfitError):
                return one(value)
        raise UnfitError

    return read


def _repeated(inner: Read) -> Read:
    return lambda value: tuple(map(inner, _checked(value, list)))


def _row(inner: tuple[Read, ...]) -> Read:
    def read(value: Any) -> Any:
        if len(_checked(value, list)) != len(inner):
            raise UnfitError
        return tuple(one(each) for one, each in zip(inner, value, strict=True))

    return read


def _mapping(inner: Read) -> Read:
    return lambda value: {key: inner(each) for key, each in _checked(value, dict).items()}


def _object(kind: Any) -> Read:
    members = readers(kind)
    needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]

    def read(value: Any) -> Any:
        found = {name: members[name](each) for name, each in _checked(value, dict).items() if name in members}
        if any(name not in found for name in needed):
            raise UnfitError
        return kind(**found)

    return read


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise UnfitError
    return value


@cache
def readers(kind: Any) -> dict[str, Read]:
    """The reader of each field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: reader(hints[each.name]) for each in fields(kind)}
