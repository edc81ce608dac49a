"""The training loop as findings see it: what counts as every step, and which waits belong to one line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anymps import _paths
from anymps.findings._model import Finding, Rule
from anymps.record import Fate, Noted, Occurrence, Phase, Recording, Site, Wait

MIN_STEPS = 3
"""Complete steps that a recording must hold before anything in it can be said to happen every step."""

_ROUNDS = 10
"""Times between two training steps that make a loop: a few may be the metrics of an epoch."""


def is_every_step(recording: Recording, occurrence: Occurrence) -> bool:
    """Whether something belongs to the loop's routine: in at least half of the complete steps, and at least twice.

    So a loss that is read every fifth step passes, and what happens in set-up, validation or after the loop does.
    What an inference reads in each round may be what it is for: of its rounds only the copies to the device are its
    routine. Of several processes those count in which it happens at all, such as the one rank that prints the loss.
    """
    steps = _all_steps(recording, occurrence)
    return steps >= MIN_STEPS and occurrence.steps >= 2 and 2 * occurrence.steps >= _steps_of(recording, occurrence)


def _all_steps(recording: Recording, occurrence: Occurrence) -> int:
    """The complete steps that can make something a routine."""
    return recording.complete_steps if occurrence.wait is Wait.COPY_TO_MPS else recording.training_steps


def _steps_of(recording: Recording, occurrence: Occurrence) -> int:
    """The complete steps of the processes in which this happened, or of the loops."""
    lines = recording.lines_by_process if len(recording.parts) > 1 else recording.lines_by_loop
    where = (lines.called if occurrence.wait is Wait.NONE else lines.waited).get(occurrence.site.file_line)
    if not lines.whole or not where:
        return _all_steps(recording, occurrence)
    return sum(lines.steps.get(number, 0) for number in where)


def waits_per_step(recording: Recording, site: Site, per_step: float) -> float:
    """How often a step waits at a line in the loops that do; `per_step` is for the steps of all loops."""
    lines = recording.lines_by_loop
    where = lines.waited.get(site.file_line)
    return lines.per_step_there(per_step, where) if where and lines.whole else per_step


@dataclass(frozen=True)
class AtLine:
    """Occurrences at one source line, taken together."""

    site: Site
    occurrences: tuple[Occurrence, ...]

    @property
    def count(self) -> int:
        """Calls in the whole run."""
        return sum(occurrence.count for occurrence in self.occurrences)

    @property
    def per_step(self) -> float:
        """Calls in a typical step."""
        return sum(occurrence.per_step for occurrence in self.occurrences)

    @property
    def moved_bytes(self) -> int:
        """Bytes moved in the whole run."""
        return sum(occurrence.moved_bytes for occurrence in self.occurrences)

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators, the most frequent first."""
        return tuple(dict.fromkeys(occurrence.operator for occurrence in self.occurrences))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in which it happened."""
        return tuple(sorted({phase for occurrence in self.occurrences for phase in occurrence.phases}))

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules in which it happened."""
        return tuple(sorted({module for occurrence in self.occurrences for module in occurrence.modules}))

    def finding(self, rule: Rule, **said: Any) -> Finding:
        """One of a rule about all of them."""
        return rule.finding(self.site, **{"count": self.count, "per_step": self.per_step, **said})


def by_line(occurrences: Iterable[Occurrence], *, split_operators: bool = False) -> list[AtLine]:
    """Group by file and line, as one line may call several torch functions; by operator too if asked or needed."""
    groups: dict[tuple[str, int, str], list[Occurrence]] = {}
    for occurrence in occurrences:
        site = occurrence.site
        operator = occurrence.operator if split_operators or not site.known else ""
        groups.setdefault((*site.file_line, operator), []).append(occurrence)
    return [AtLine(group[0].site, tuple(group)) for group in groups.values()]


def notes_by_line(notes: Iterable[Noted]) -> list[list[Noted]]:
    """Those at lines of the program, line by line: what an installed package does is its own business."""
    groups: dict[tuple[str, int], list[Noted]] = {}
    for note in notes:
        site = note.occurrence.site
        if site.known and not is_library(site):
            groups.setdefault(site.file_line, []).append(note)
    return list(groups.values())


def count_of(notes: Iterable[Noted]) -> int:
    """How often something was noted in the whole run."""
    return sum(note.occurrence.count for note in notes)


def loops_untrained(recording: Recording, line: AtLine) -> bool:
    """Whether something repeats at a line between two training steps, and not a few times in many of them.

    So do the rounds of a validation or an inference; the handful of metrics at the end of an epoch do not.
    """
    if not recording.trains:
        return line.count >= _ROUNDS
    steps = max(occurrence.steps for occurrence in line.occurrences)
    return line.count >= _ROUNDS * (steps + 1)


def uses_mps(recording: Recording) -> bool:
    """Whether anything ran on mps."""
    return any(use.fate in (Fate.NATIVE, Fate.COPY) for use in recording.operators())


def some_steps(recording: Recording, occurrences: Iterable[Occurrence]) -> str:
    """` in 60 of 120 steps`: for what an `if` keeps out of many steps; empty where most steps have it."""
    steps, of = max(
        ((occurrence.steps, _steps_of(recording, occurrence)) for occurrence in occurrences), default=(0, 0)
    )
    return f" in {steps:,} of {of:,} steps" if 4 * steps < 3 * of else ""


def is_library(site: Site) -> bool:
    """Whether a line belongs to an installed package: what its loop does is not the user's habit."""
    return bool(package_of(site))


def package_of(site: Site) -> str:
    """The folder or file of an installed package that a line belongs to, `timm`; empty for a line of the user's."""
    return _paths.package_of(site.file)


def times(count: float) -> str:
    """`once`, `twice`, `3 times`, `2.5 times`."""
    said = number(count)
    return {"1": "once", "2": "twice"}.get(said, f"{said} times")


def number(value: float) -> str:
    """`3`, `2.5`."""
    return f"{value:.1f}".removesuffix(".0")
