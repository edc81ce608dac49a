"""What may differ between releases at one line of a script, and what becomes of it in one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from anymps.record import Site

Release = tuple[int, int]
"""(major, minor) of torch, or of macOS."""


def named(release: Release) -> str:
    """`2.13`."""
    return ".".join(map(str, release))


def first_dtype(inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """That of the first tensor of a call; empty if it has none."""
    tensors = (*inputs, *outputs)
    return tensors[0].partition("[")[0] if tensors else ""


class Outcome(IntEnum):
    """What becomes of calls, the best first."""

    FINE = 0
    UNKNOWN = 1
    SLOWER = 2
    ON_CPU = 3
    DOUBTFUL = 4
    WRONG = 5
    REFUSED = 6
    NO_DEVICE = 7

    @property
    def word(self) -> str:
        """What a table says of it."""
        return _WORDS[self]


_WORDS = {
    Outcome.FINE: "OK",
    Outcome.UNKNOWN: "unknown",
    Outcome.SLOWER: "slower",
    Outcome.ON_CPU: "falls back",
    Outcome.DOUBTFUL: "may fail",
    Outcome.WRONG: "wrong",
    Outcome.REFUSED: "refused",
    Outcome.NO_DEVICE: "no mps",
}


@dataclass(frozen=True)
class Answer:
    """An outcome, and in a few words why: a message of torch, or what is not known.

    `factor` is, of a slow path, how many times as long the calls take, at least and at most.
    """

    outcome: Outcome
    why: str = ""
    factor: tuple[float, float] = (1.0, 1.0)


FINE = Answer(Outcome.FINE)


@dataclass(frozen=True)
class Subject:
    """Calls of one kind at one line: of an operator with a dtype, or those that meet a known bug, `fault`.

    `title` says what goes wrong in a few words, `source` backs that; both are empty where only the operator counts.
    `answers` tells what becomes of the calls with a release of torch on a version of macOS.
    """

    site: Site
    operator: str
    dtype: str = ""
    fault: str = ""
    title: str = ""
    source: str = ""
    answers: Callable[[Release, Release], Answer] = field(kw_only=True, compare=False, repr=False)
