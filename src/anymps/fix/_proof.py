"""Proving edits: the program before and after them, with the same seeds, has the same losses and fewer findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose, isnan

from anymps.fix._edits import Edit, apply_all
from anymps.fix._program import Program

TOLERANCE = 1e-3
"""Relative, of losses and of printed numbers: a fused kernel rounds otherwise, and steps carry that on."""
_NOTHING = 1e-6


@dataclass(frozen=True)
class Ran:
    """One run: how it ended, what it computed, and how often each rule spoke.

    `error` is empty for a run that ended with 0. `losses` are the values that backward was called on, `printed` the
    numbers on standard output, `told` what a table of before and after shows.
    """

    error: str
    losses: tuple[float, ...]
    printed: tuple[float, ...]
    rules: Mapping[str, int]
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of one edit: kept if `why` is empty."""

    edit: Edit
    why: str = ""


@dataclass(frozen=True)
class Proof:
    """The program with the edits that are proved; `after` is None where there are none."""

    program: Program
    outcomes: tuple[Outcome, ...]
    before: Ran
    after: Ran | None


def prove(program: Program, edits: Sequence[Edit], before: Ran, run: Callable[[Program], Ran]) -> Proof:
    """Run the program with all edits; if that does not agree with `before`, with one after the other.

    What differs between two runs of the script as it stands, such as a printed time, is not compared.
    """
    again = run(program) if not before.error else before
    after = run(apply_all(edits, program))
    if not disagreement(before, again, after, edits):
        return Proof(apply_all(edits, program), tuple(map(Outcome, edits)), before, after)
    kept: list[Edit] = []
    outcomes = []
    best: Ran | None = None
    for edit in sorted(edits, key=lambda it: it.finding.order):
        tried = sorted([*kept, edit], key=lambda it: -it.line)
        after = run(apply_all(tried, program))
        why = disagreement(before, again, after, tried)
        outcomes.append(Outcome(edit, why))
        if not why:
            kept, best = tried, after
    return Proof(apply_all(kept, program), tuple(outcomes), before, best)


def disagreement(before: Ran, again: Ran, after: Ran, edits: Iterable[Edit]) -> str:
    """Why a run after edits does not prove them, in one clause; empty where it does."""
    if after.error and (not before.error or after.error == before.error):
        return f"the script {'still ' if before.error else ''}stops: {after.error}"
    for rule, fixed in Counter(edit.finding.id for edit in edits).items():
        if after.rules.get(rule, 0) > before.rules.get(rule, 0) - fixed:
            return f"{rule} is still told"
    if before.error:
        return ""  # it gets further: there are no losses to compare, and what comes later is new
    for rule, count in after.rules.items():
        if count > max(before.rules.get(rule, 0), again.rules.get(rule, 0)):
            return f"it brings {rule}"
    return _difference("losses", before.losses, again.losses, after.losses) or _difference(
        "printed numbers", before.printed, again.printed, after.printed
    )


def _difference(what: str, before: Sequence[float], again: Sequence[float], after: Sequence[float]) -> str:
    if len(before) != len(again):
        return ""  # as many lines as there was time for
    if len(before) != len(after):
        return f"{len(after):,} {what} instead of {len(before):,}"
    for first, second, new in zip(before, again, after, strict=True):
        if _agree(first, second) and not _agree(first, new):
            return f"{what} differ: {new:.6g} instead of {first:.6g}"
    return ""


def _agree(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=TOLERANCE, abs_tol=_NOTHING) or (isnan(one) and isnan(other))
