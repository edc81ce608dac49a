"""The facts of one run of a program, and whether a run after edits agrees with the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose, isnan
from os.path import realpath
from pathlib import Path

from anymps.findings import RULES, rule_of
from anymps.fix._cause import Cause
from anymps.fix._edits import Edit
from anymps.fix._messages import comparable

TOLERANCE = 1e-3
"""Relative, of losses and of printed numbers: a fused kernel rounds otherwise, and steps carry that on."""
_NOTHING = 1e-6

Trail = tuple[tuple[str, int], ...]
"""Lines of the program's own files at which an exception was, by file, the outermost first."""


@dataclass(frozen=True)
class Ran:
    """One run: how it ended, what it computed, and how often each rule spoke.

    `error` is empty for a run that ended with 0. `losses` are the values that backward was called on, `printed` the
    numbers on standard output, `told` what a table of before and after shows. `trail` is where the error was, and
    `worker` what a process that the script started printed when an exception ended it. `reached` are the changed lines
    that the run came to, None if nobody looked. It took `seconds`. `host` are the host's times in its typical step as
    plain values, which `anymps.forecast.HostTimes` reads. `places` are the types of devices of the parameters that an
    optimizer stepped last, `modules` the files of the program's own modules that were imported. `used` says whether
    anything was on mps. `found` are the places of findings: rule, file and line.
    """

    error: str
    losses: tuple[float, ...]
    printed: tuple[float, ...]
    rules: Mapping[str, int]
    told: Mapping[str, str] = field(default_factory=dict)
    trail: Trail = ()
    worker: str = ""
    reached: frozenset[tuple[str, int]] | None = None
    seconds: float = 0.0
    host: tuple[Sequence[Sequence[object]], float] = ((), 0.0)
    places: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    used: bool = False
    found: frozenset[tuple[str, str, int]] = frozenset()

    @property
    def place(self) -> str:
        """The innermost line of the program's own at which it stopped: ` at train.py:9`; empty where none is known."""
        return _last(self.trail)

    @property
    def stopped(self) -> str:
        """The error, and that of a process which the script started, in one line."""
        lines = self.worker.splitlines()
        return f"{self.error} (a process that it started: {lines[-1]})" if lines else self.error

    def stops_there_too(self, other: Ran) -> bool:
        """Whether two runs ended with the same error at the same line; where one tells no line, the words alone count.

        Both lines are those of one text.
        """
        return self.stops_like(other) and (not self.trail or not other.trail or self.trail == other.trail)

    def stops_like(self, other: Ran) -> bool:
        """Whether two runs ended with the same words, but for numbers of one run."""
        return comparable(self.error) == comparable(other.error)


@dataclass(frozen=True)
class Disagreement:
    """Why a run after edits does not prove them, in one clause.

    `guilty` are the edits that it speaks against, none if that cannot be told. `chance`: it may lie in what differs
    between two runs of the unchanged script. Where a run elsewhere than on the Mac found it, `by_device` says that only
    edits which name a device can be guilty.
    """

    why: str
    guilty: tuple[Edit, ...] = ()
    chance: bool = False
    cause: Cause = Cause.DIFFERS
    by_device: bool = True


def disagreement(
    before: Ran,
    again: Ran | None,
    after: Ran,
    edits: Sequence[Edit],
    old_line: Callable[[str, int], int] = lambda _, line: line,
) -> Disagreement | None:
    """What speaks against a run after edits; None where it proves them.

    `again` is a second run of the unchanged script: what differs between the two is not compared. `old_line` tells
    where a line of a changed file stood before.
    """
    trail = tuple((file, old_line(file, line)) for file, line in after.trail)
    if after.error and not before.error:
        cause = Cause.STOPS_ON_MPS if after.used and not before.used else Cause.DIFFERS
        return Disagreement(f"the script stops{_last(trail)}: {after.stopped}", _at(edits, trail), cause=cause)
    if "mps" in before.places and after.places and "mps" not in after.places:
        return Disagreement(f"the model is on {' and '.join(after.places)} instead of {' and '.join(before.places)}")
    further = bool(before.error) and not (after.error and before.stops_there_too(replace(after, trail=trail)))
    told = _told_there(after, edits, old_line) if further else _still_told(before, after, edits)
    if told:
        return Disagreement(f"{told[0]} is still reported", tuple(edit for edit in edits if edit.finding.id in told))
    if further:  # what comes later is new; what came before is not
        if after.error and _is_earlier(before, after, trail):
            return Disagreement(f"the script stops earlier{_last(trail)}: {after.stopped}", _at(edits, trail))
        whole = Ran(after.error, after.losses[: len(before.losses)], after.printed[: len(before.printed)], {})
        return _numbers_differ(before, again, whole)
    # What is found on mps where nothing ran there before was only hidden.
    hidden = "mps" in after.places and before.places and "mps" not in before.places
    for rule, count in () if hidden else after.rules.items():
        if count > max(before.rules.get(rule, 0), again.rules.get(rule, 0) if again else 0):
            moved = tuple(edit for edit in edits if rule_of(edit.finding).about_waits) if _about_waits(rule) else ()
            return Disagreement(f"it causes {rule}", moved, chance=not moved)
    return _numbers_differ(before, again, after)


def gets_further(before: Ran, after: Ran) -> bool:
    """Whether a run shows what the one before did not come to: lines after the one that stopped it, or work on mps.

    The lines at which both stopped are those of one text.
    """
    if after.used and not before.used:
        return True
    return bool(before.error) and not (after.error and before.stops_there_too(after))


def _about_waits(rule: str) -> bool:
    """Whether a rule is about waits: a value that is kept as a tensor waits where it is read then."""
    return rule in RULES and RULES[rule].about_waits


def _is_earlier(before: Ran, after: Ran, trail: Trail) -> bool:
    """Whether a run has come less far than the one before: by its losses, else by the first line that differs."""
    if len(after.losses) != len(before.losses):
        return len(after.losses) < len(before.losses)
    parted = next((pair for pair in zip(trail, before.trail, strict=False) if pair[0] != pair[1]), None)
    return parted is not None and parted[0][0] == parted[1][0] and parted[0][1] < parted[1][1]


def _still_told(before: Ran, after: Ran, edits: Sequence[Edit]) -> list[str]:
    asked = Counter(edit.finding.id for edit in edits if edit.finding.count)
    most = {rule: max(before.rules.get(rule, 0) - fixed, 0) for rule, fixed in asked.items()}
    return [rule for rule, count in most.items() if after.rules.get(rule, 0) > count]


def _told_there(after: Ran, edits: Sequence[Edit], old_line: Callable[[str, int], int]) -> list[str]:
    """The rules that still speak at the lines of their findings: what they say of later lines is new."""
    there = {(rule, file, old_line(file, line)) for rule, file, line in after.found}
    sites = ((edit.finding.id, edit.finding.site) for edit in edits if edit.finding.count)
    return list(dict.fromkeys(rule for rule, site in sites if (rule, realpath(site.file), site.line) in there))


def _at(edits: Sequence[Edit], trail: Trail) -> tuple[Edit, ...]:
    """The edits of the lines at which an error was."""
    return tuple(edit for edit in edits if (str(edit.file), edit.line) in trail)


def _last(trail: Trail) -> str:
    """The innermost line of the program's own at which an error was."""
    return f" at {Path(trail[-1][0]).name}:{trail[-1][1]}" if trail else ""


def _numbers_differ(before: Ran, again: Ran | None, after: Ran) -> Disagreement | None:
    second = again or before
    why = _difference("losses", before.losses, second.losses, after.losses) or _difference(
        "printed numbers", before.printed, second.printed, after.printed
    )
    return Disagreement(why, chance=again is None) if why else None


def _difference(what: str, before: Sequence[float], again: Sequence[float], after: Sequence[float]) -> str:
    if len(before) != len(again):
        return ""  # as many lines as there was time for
    if len(before) != len(after):
        return f"{len(after):,} {what} instead of {len(before):,}"
    for first, second, new in zip(before, again, after, strict=True):
        if agree(first, second) and not agree(first, new):
            return f"{what} differ: {new:.6g} instead of {first:.6g}"
    return ""


def agree(one: float, other: float) -> bool:
    """Whether two numbers are the same up to rounding."""
    return isclose(one, other, rel_tol=TOLERANCE, abs_tol=_NOTHING) or (isnan(one) and isnan(other))
