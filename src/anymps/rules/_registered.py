"""Which operator overloads had a kernel on mps in which torch release, from `registered.txt`.

For the installed release the wheel's own operator list decides (`operator_rules`); the tests hold the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from anymps.rules._readings import Reading

READING: Final = Reading(
    "registered", "TORCH_LIBRARY_IMPL initialisers of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 7), (2, 15)
)
FIRST_RELEASE: Final = READING.first
LAST_RELEASE: Final = READING.last
"""The releases that the table covers, both included."""

_HEADER: Final = re.compile(r"\[(\w+) 2\.(\d+)-(?:2\.(\d+))?\]")


class Registration(NamedTuple):
    """A kernel on mps, from release `since` to release `until`, both included.

    `key` is the dispatch key (`MPS`, `SparseMPS`, `SparseCsrMPS`), `Fallback` where the kernel registered for MPS is
    the CPU fallback, or `Python` where torch registers it from Python.
    """

    key: str
    since: tuple[int, int]
    until: tuple[int, int]


@lru_cache(maxsize=1)
def registrations() -> Mapping[str, tuple[Registration, ...]]:
    """Every overload (`add.Tensor`) that ever had a kernel on mps; treat the result as read-only."""
    table: dict[str, tuple[Registration, ...]] = {}
    entry: Registration | None = None
    for line in files("anymps.rules").joinpath("registered.txt").read_text(encoding="utf-8").splitlines():
        header = _HEADER.fullmatch(line)
        if header:
            key, since, until = header.groups()
            entry = Registration(key, (2, int(since)), (2, int(until)) if until else LAST_RELEASE)
        elif entry is not None and not line.startswith("#"):
            for name in line.split():
                table[name] = (*table.get(name, ()), entry)
    return table


@lru_cache(maxsize=2)
def registered(release: tuple[int, int]) -> Mapping[str, frozenset[str]]:
    """By overload with a kernel in the release: the keys of its `Registration`s; treat the result as read-only."""
    return {
        name: keys
        for name, entries in registrations().items()
        if (keys := frozenset(entry.key for entry in entries if entry.since <= release <= entry.until))
    }


def native_since(operator: str) -> tuple[int, int] | None:
    """The release from which an operator (`take`, `aten::take.out`) runs on mps, None if it does in none.

    That is the first with an MPS kernel or, for an operator that always fell back, the first in which it does not any
    more. The first release of the table means that or earlier. The oldest one counts where overloads differ, unless
    one of them is named.
    """
    name = operator.removeprefix("aten::")
    table = registrations()
    names = [name] if name in table else [other for other in table if other.partition(".")[0] == name.partition(".")[0]]
    return min((since for since in map(_runs_since, names) if since is not None), default=None)


def _runs_since(name: str) -> tuple[int, int] | None:
    entries = registrations()[name]
    native = [entry.since for entry in entries if entry.key in ("MPS", "Python")]
    freed = [(entry.until[0], entry.until[1] + 1) for entry in entries if entry.key == "Fallback"]
    since = min(native) if native else max(freed, default=None)
    return since if since is not None and since <= LAST_RELEASE else None
