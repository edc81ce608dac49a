"""What the marks on a test ask for, read once when the test is collected."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest

from anymps._numbers import MOST

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True)
class Fails:
    """`mps_fails`: the exception that the test must end with."""

    types: tuple[type[BaseException], ...]
    match: str | None

    def __str__(self) -> str:
        names = " or ".join(kind.__name__ for kind in self.types)
        return names if self.match is None else f"{names} matching {self.match!r}"

    def met_by(self, error: BaseException | None) -> bool:
        """Whether the exception is the expected one."""
        return isinstance(error, self.types) and (self.match is None or re.search(self.match, str(error)) is not None)


@dataclass(frozen=True)
class Marks:
    """All of a test's; limits in times and bytes."""

    fails: Fails | None = None
    fallbacks: tuple[str, ...] = ()
    waits: int | None = None
    memory: int | None = None


def read_marks(item: pytest.Item) -> Marks:
    """Read them. Raises UsageError, in one line, for arguments that make no sense."""
    fallbacks: list[str] = []
    for mark in item.iter_markers("mps_fallback"):
        if mark.kwargs or not mark.args or not all(isinstance(name, str) and "::" in name for name in mark.args):
            raise _wrong(item, mark, 'names operators as the recording does: mps_fallback("aten::take", ...)')
        fallbacks += mark.args
    return Marks(_fails(item), tuple(fallbacks), _waits(item), _memory(item))


def skip_reason(item: pytest.Item) -> str | None:
    """The reason of `mps_skip`, None without it. Raises UsageError if there is no reason."""
    mark = item.get_closest_marker("mps_skip")
    if mark is None:
        return None
    reason = _single(mark, "reason")
    if not isinstance(reason, str) or not reason:
        raise _wrong(item, mark, 'needs a reason: mps_skip("...")')
    return reason


def read_size(text: str) -> int | None:
    """Bytes of `100 MiB`, `1.5 GB`, `64KiB`; None if the text is no size."""
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match[2].upper()) if match is not None else None
    size = float(match[1]) * factor if match is not None and factor is not None else math.inf
    return round(size) if size < MOST else None


def _fails(item: pytest.Item) -> Fails | None:
    mark = item.get_closest_marker("mps_fails")
    if mark is None:
        return None
    kinds, match = mark.kwargs.get("raises"), mark.kwargs.get("match")
    types = kinds if isinstance(kinds, tuple) else (kinds,)
    good = not mark.args and set(mark.kwargs) <= {"raises", "match"} and isinstance(match, (str, type(None)))
    if (
        not good
        or not types
        or not all(isinstance(type_, type) and issubclass(type_, BaseException) for type_ in types)
    ):
        raise _wrong(item, mark, "takes an exception class: mps_fails(raises=NotImplementedError, match=None)")
    try:
        re.compile(match or "")
    except re.error as error:
        raise _wrong(item, mark, f"match={match!r} is not a valid regular expression: {error}") from None
    return Fails(types, match)


def _waits(item: pytest.Item) -> int | None:
    mark = item.get_closest_marker("mps_limit_waits")
    if mark is None:
        return None
    limit = _single(mark, "n")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise _wrong(item, mark, f"takes one whole number, not {limit!r}")
    return limit


def _memory(item: pytest.Item) -> int | None:
    mark = item.get_closest_marker("mps_limit_memory")
    if mark is None:
        return None
    limit = _single(mark, "limit")
    size = read_size(limit) if isinstance(limit, str) else None
    if size is None:
        raise _wrong(item, mark, f'takes a size with its unit, such as "100 MiB", not {limit!r}')
    return size


def _single(mark: pytest.Mark, name: str) -> object:
    """The one argument of a mark, given with or without its name; None if there is none, or more."""
    values = [*mark.args, *mark.kwargs.values()]
    return values[0] if len(values) == 1 and set(mark.kwargs) <= {name} else None


def _wrong(item: pytest.Item, mark: pytest.Mark, what: str) -> pytest.UsageError:
    return pytest.UsageError(f"{item.nodeid}: mark {mark.name} {what}")
