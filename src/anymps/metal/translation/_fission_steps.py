"""What the body of a kernel is cut into where its threads need each other: the steps of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PLANE = 2  # in place of an axis: the threads of a group lie along x and y


@dataclass(frozen=True)
class Item:
    """A statement of one thread."""

    text: str
    used: frozenset[str]
    declared: tuple[str, ...] = ()
    stores: bool = False
    changed: frozenset[str] = frozenset()
    again: bool = False  # what it declares is computed again wherever it is needed
    bound: str = ""  # an expression: threads from that one on have nothing to do


@dataclass(frozen=True)
class Piece:
    """What threads do on their own; `bound` is the first one that has nothing to do."""

    items: Sequence[Item]
    bound: str = ""

    @property
    def used(self) -> frozenset[str]:
        """All names in it."""
        return frozenset().union(*(item.used for item in self.items))


@dataclass(frozen=True)
class Once:
    """A statement that is done once for the group."""

    text: str
    used: frozenset[str]


@dataclass(frozen=True)
class Cut:
    """A barrier."""

    used: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Call:
    """A function that all threads call together."""

    result: str
    word: str
    path: str
    arguments: tuple[str, ...]
    lane: int | None  # which argument is the thread's index; its text is from where that counts
    uniform: bool  # one result for the group

    @property
    def used(self) -> frozenset[str]:
        """The names of its arguments."""
        return frozenset(self.arguments)


@dataclass(frozen=True)
class LoopBegins:
    """The head of a loop that is run once for the group; up to its end the steps are its body."""

    text: str  # what stands between `for` and the body
    counter: str
    used: frozenset[str]


@dataclass(frozen=True)
class LoopEnds:
    """Where the body of the innermost loop ends."""

    used: frozenset[str] = frozenset()


Step = Piece | Once | Cut | Call | LoopBegins | LoopEnds
