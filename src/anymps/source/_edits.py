"""Edits as data: what to change in code, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anymps.source._code import Splice
from anymps.source._place import Place


@dataclass(frozen=True)
class Insert:
    """A line of code below the imports of a file; it binds `name`, which the changed line needs."""

    name: str
    code: str


@dataclass(frozen=True)
class Rewritten:
    """What becomes of a code: its splices, and what they need elsewhere in the file.

    `shown` is the part of it that a sentence shows, with the change; all of it if None.
    """

    splices: tuple[Splice, ...]
    inserts: tuple[Insert, ...] = ()
    shown: tuple[int, int] | None = None


@dataclass(frozen=True)
class LineEdit:
    """A statement written anew. `rewrite` gives None for one that it has nothing to change in."""

    rewrite: Callable[[Place], Rewritten | None]


@dataclass(frozen=True)
class CallEdit:
    """Arguments of a call: those to `set`, each with its value as code, and those to `drop`.

    `callee` are the last names of functions that it is for, all if there is none. `given` are arguments that the call
    must have, with their values; without a value it may be any. `order` names the first positional parameters.
    """

    callee: tuple[str, ...] = ()
    set: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Guard:
    """`if __name__ == "__main__":` around the end of the script: a change of a whole file."""


Edit = LineEdit | CallEdit | Guard
