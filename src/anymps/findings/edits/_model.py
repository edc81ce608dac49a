"""Edits as data: what a rule would change in code, how sure that is, and what came of it at one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from anymps.findings.edits._code import Splice, in_one_line
from anymps.record import Site

if TYPE_CHECKING:
    from anymps.findings.edits._place import Place


class Safety(Enum):
    """What an edit needs before it is made."""

    SAFE = "safe"
    """Nothing: the new code means the same on cpu, cuda and mps."""
    PROVED = "proved"
    """Two runs that agree, as `anymps fix` makes them."""
    ADVICE = "advice"
    """A person: what it changes is seen in the program's results. No machine makes it."""


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


@dataclass(frozen=True)
class Change:
    """An edit at one place: in a file, from line and column (both from 1), `old` becomes `new`.

    It is built from what the recording holds of the file. Where that is the line alone, `column` is 0.
    """

    file: str
    line: int
    column: int
    old: str
    new: str
    inserts: tuple[Insert, ...] = ()

    @property
    def code(self) -> str:
        """The new code in one line, as a sentence shows it; empty where Python needs several."""
        return self.new if "\n" not in self.new else in_one_line(self.new)


@dataclass(frozen=True)
class Placed:
    """An edit, and the lines at which it may be made, the best first."""

    edit: Edit
    sites: tuple[Site, ...]
    safety: Safety
