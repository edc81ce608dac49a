"""Proves edits: with the same seeds, the program has the same losses before and after, and fewer findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from anymps.findings.edits import Safety
from anymps.fix._budget import Budget
from anymps.fix._cause import Cause
from anymps.fix._edits import Edit, apply_all
from anymps.fix._later_uses import later_uses
from anymps.fix._lines import new_line, rows, statement_lines, with_branches
from anymps.fix._program import Program
from anymps.fix._same_run import Disagreement, Ran, disagreement, gets_further

NOT_TRIED = "{}; not tried alone within the time of {} runs (--runs allows more)"
NOT_RUN = "the run did not reach its line"

_DEVICE_WORD = re.compile(r"""cuda|mps|device|accelerator|autocast|(?<=["'])cpu(?=["'])""")
_TENSOR = ".detach()"  # of an edit that keeps a tensor where there was a number

Place = tuple[Path, int]
"""File and line of an edit, of which no two are the same."""

Check = Callable[[Program, Program], Disagreement | None]
"""Compares a program before and after edits elsewhere than on the Mac, such as without a GPU."""


@dataclass(frozen=True)
class Outcome:
    """What became of one edit: kept if there is no `cause` against it, which `why` says in words.

    `unseen` are lines that get a tensor of a kept edit in place of a number and were not reached, by the name that
    they use: whether they can take one, no run tells.
    """

    edit: Edit
    why: str = ""
    cause: Cause | None = None
    unseen: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it is not kept, and nothing speaks against it."""
        return self.cause is not None and self.cause.is_open


@dataclass(frozen=True)
class Proof:
    """The program with the edits that are proved; `after` is None where there are none.

    `unproved` is that program with the edits as well that nothing speaks against. `tried` is the program that ran
    `after`, and `further` whether that run shows what the one before did not come to.
    """

    program: Program
    outcomes: tuple[Outcome, ...]
    before: Ran
    after: Ran | None
    unproved: Program
    tried: Program
    further: bool = False


@dataclass
class _Prover:
    program: Program
    before: Ran
    run: Callable[[Program], Ran]
    check: Check | None
    budget: Budget
    again: Ran | None = None
    whys: dict[Place, Disagreement] = field(default_factory=dict)
    together: dict[Place, str] = field(default_factory=dict)  # why the last group in which an edit was is not proved

    def against(self, tried: Sequence[Edit]) -> tuple[Ran, Disagreement | None]:
        """A run with these edits, and what speaks against it."""
        changed = apply_all(tried, self.program)
        after = self.run(changed)
        self.budget.spend(after.seconds)

        before_line = partial(line_between, changed, self.program)
        found = disagreement(self.before, self.again, after, tried, before_line)
        mixed = len({_is_safe(edit) for edit in tried}) > 1  # then a run is kept for those that are safe alone
        has_time = self.budget.left >= self.budget.longest * (2 if mixed else 1)
        if found is not None and found.chance and self.again is None and has_time:
            self.again = self.run(self.program)
            self.budget.spend(self.again.seconds)
            found = disagreement(self.before, self.again, after, tried, before_line)
        hidden = self.before.error and after.error and self.gets_further(changed, after)  # there is more to mend
        if found is None and self.check is not None and not (hidden and not names_device(self.program, changed)):
            found = self.check(self.program, changed)
            if found is not None and not found.guilty:
                concerned = (edit for edit in tried if not found.by_device or self._names_device(edit))
                found = replace(found, guilty=tuple(concerned))
        if found is not None and found.cause is Cause.STOPS_ON_MPS:  # what let it choose mps
            found = replace(found, guilty=tuple(edit for edit in tried if self._names_device(edit)))
        return after, found

    def gets_further(self, changed: Program, after: Ran) -> bool:
        return gets_further(self.before, by_lines_of(self.program, changed, after))

    def _names_device(self, edit: Edit) -> bool:
        return names_device(self.program, apply_all([edit], self.program))


def prove(
    program: Program,
    edits: Sequence[Edit],
    before: Ran,
    run: Callable[[Program], Ran],
    check: Check | None = None,
    budget: Budget | None = None,
    unreached: Sequence[Edit] = (),
) -> Proof:
    """Run the program with all edits; where that does not agree with `before`, with fewer, as long as there is time.

    Those that something speaks against are left out first, else the halves are tried. What is not proved within the
    budget is not kept. `check` compares the two programs elsewhere. `unreached` are edits of lines to which no run is
    known to have come: they are not tried, and belong to what is not proved.
    """
    prover = _Prover(program, before, run, check, budget or Budget(longest=before.seconds, spent=before.seconds))
    kept: list[Edit] = []
    best: Ran | None = None
    groups = [sorted(edits, key=lambda edit: edit.finding.order)]
    while groups:
        group = groups.pop(0)
        if prover.together and not prover.budget.allows_run:
            for edit in (*group, *(edit for rest in groups for edit in rest)):
                why = NOT_TRIED.format(prover.together[_place(edit)], prover.budget.runs)
                prover.whys.setdefault(_place(edit), Disagreement(why, cause=Cause.NO_TIME))
            break
        tried = _in_order([*kept, *group], edits)
        after, found = prover.against(tried)
        if found is None:
            kept, best = tried, after
            continue
        prover.together |= dict.fromkeys(map(_place, group), found.why)
        groups = [*_smaller(group, found, prover.whys), *groups]
    outcomes = [_outcome(edit, kept, best, prover) for edit in edits]
    proved = [outcome.edit for outcome in outcomes if not outcome.why]
    left = [outcome.edit for outcome in outcomes if outcome.is_open]
    tried_all = apply_all(kept, program)
    return Proof(
        program=apply_all(proved, program),
        outcomes=tuple(outcomes),
        before=before,
        after=best if proved else None,
        unproved=apply_all(sorted([*proved, *left, *unreached], key=_place, reverse=True), program),
        tried=tried_all,
        further=bool(proved) and best is not None and prover.gets_further(tried_all, best),
    )


def _smaller(group: list[Edit], found: Disagreement, whys: dict[Place, Disagreement]) -> list[list[Edit]]:
    """What to try in place of a group that something speaks against; `whys` gets those that it speaks against alone."""
    guilty = [edit for edit in group if edit in found.guilty]
    if len(guilty) == 1 or len(group) == 1:
        lone = (guilty or group)[0]
        whys[_place(lone)] = found
        rest = [edit for edit in group if edit is not lone]
        return [rest] if rest else []
    if found.cause in (Cause.NOT_SEEN, Cause.STOPS_ON_MPS):  # fewer of them would show no more
        whys.update(dict.fromkeys(map(_place, guilty or group), found))
        rest = [edit for edit in group if edit not in guilty] if guilty else []
        return [rest] if rest else []
    if guilty and len(guilty) < len(group):
        innocent = [edit for edit in group if edit not in guilty]
        whys.update(dict.fromkeys(map(_place, guilty), found))
        return [innocent, *_halves(guilty)]
    sure, rest = ([edit for edit in group if _is_safe(edit) is safe] for safe in (True, False))
    return [sure, rest] if sure and rest else _halves(group)


def _is_safe(edit: Edit) -> bool:
    """Whether its code means the same everywhere, by its rule: what changed came from others, if there are any."""
    return edit.finding.edit is not None and edit.finding.edit.safety is Safety.SAFE


def _halves(group: list[Edit]) -> list[list[Edit]]:
    half = len(group) // 2
    return [group[:half], group[half:]]


def _outcome(edit: Edit, kept: Sequence[Edit], best: Ran | None, prover: _Prover) -> Outcome:
    if edit not in kept:
        against = prover.whys[_place(edit)]
        return Outcome(edit, against.why, against.cause)
    if best is None or best.reached is None:
        return Outcome(edit)
    changed = apply_all(kept, prover.program)
    line = line_between(prover.program, changed, str(edit.file), edit.line)
    text = changed.script(edit.file).text
    first, last = with_branches(text, statement_lines(text, line))
    reached = frozenset(number for file, number in best.reached if file == str(edit.file))
    if reached.isdisjoint(range(first, last + 1)):
        return Outcome(edit, NOT_RUN, Cause.NOT_REACHED)
    old, new = (_statement(program, edit.file, at) for program, at in ((prover.program, edit.line), (changed, line)))
    if new.count(_TENSOR) == old.count(_TENSOR):
        return Outcome(edit)  # it keeps what it kept
    unseen: list[tuple[str, tuple[int, ...]]] = []
    for name, uses in later_uses(text, line).items():
        rows = {use: statement_lines(text, use) for use in uses}
        left = [use for use, (start, end) in rows.items() if reached.isdisjoint(range(start, end + 1))]
        if left:
            lines = (line_between(changed, prover.program, str(edit.file), use) for use in left)
            unseen.append((name, tuple(dict.fromkeys(lines))))
    return Outcome(edit, unseen=tuple(unseen))


def _statement(program: Program, file: Path, line: int) -> str:
    text = program.script(file).text
    first, last = statement_lines(text, line)
    return "\n".join(rows(text)[first - 1 : last])


def _place(edit: Edit) -> Place:
    return edit.file, edit.line


def _in_order(chosen: Sequence[Edit], edits: Sequence[Edit]) -> list[Edit]:
    """As `edits_for` gives them, which is how they can be applied."""
    return [edit for edit in edits if edit in chosen]


def line_between(one: Program, other: Program, file: str, line: int) -> int:
    """Where a line of a file of one program stands in the other one."""
    first, second = one.text_of(file), other.text_of(file)
    return line if first == second else new_line(first, second, line)


def by_lines_of(program: Program, ran: Program, what: Ran) -> Ran:
    """What one state of a program did, with the lines of another state at which it stopped."""
    return replace(what, trail=tuple((file, line_between(ran, program, file, line)) for file, line in what.trail))


def names_device(before: Program, after: Program) -> bool:
    """Whether two programs say otherwise where something runs: by the words for it, which differ in number."""
    return any(_device_words(old.text) != _device_words(new.text) for old, new in after.differences_from(before))


def _device_words(text: str) -> Counter[str]:
    return Counter(_DEVICE_WORD.findall(text))
