"""From a script to its fixed form: runs, edits and proofs, until nothing more can be fixed or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from anymps.commands._show import say
from anymps.commands.fix._checks import Checks
from anymps.commands.fix._earlier_runs import KeptRun, last_run
from anymps.commands.fix._runs import Progress, Runs, Tried
from anymps.findings import Finding
from anymps.fix import (
    Budget,
    Cause,
    Edit,
    Outcome,
    Program,
    Proof,
    Ran,
    Suggestion,
    apply_all,
    by_lines_of,
    device_options,
    edits_for,
    line_between,
    prove,
)
from anymps.forecast import HostTimes
from anymps.record import Site
from anymps.report import plural

_ROUNDS = 20
"""An error hides what comes after it, and a CPU what a script does on mps: so many such rounds are made in turn."""
_STEPS = 5


@dataclass
class Mended:
    """A program with all that is proved; `unproved` is that with the edits as well that nothing speaks against.

    Lines of its edits and findings are those of the script as it stands.
    """

    program: Program
    unproved: Program
    proofs: list[Proof] = field(default_factory=list)
    suggestions: list[Suggestion] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    before: Ran | None = None
    """The script as it stands; None where a recording told that there is nothing to do."""

    @property
    def kept(self) -> list[Outcome]:
        """The edits that are proved."""
        return [outcome for proof in self.proofs for outcome in proof.outcomes if outcome.cause is None]

    @property
    def after(self) -> Ran | None:
        """The last run with proved edits."""
        return next((proof.after for proof in reversed(self.proofs) if proof.after is not None), None)

    @property
    def open(self) -> list[Suggestion]:
        """What `unproved` has beyond the proved edits."""
        return [suggestion for suggestion in self.suggestions if suggestion.cause.is_open]


class Mender:
    """Mends one program. `budget` says how much time its runs may take.

    With the `progress` of a mender before it, it counts on from there, and keeps no run for the next time.
    """

    def __init__(self, program: Program, runs: Runs, budget: Budget, progress: Progress | None = None) -> None:
        self._program = program
        self._runs = runs
        self._budget = budget
        # The last one is that without --cuda-as-mps.
        self.progress = progress or Progress(4 if runs.order.asked.cuda_as_mps else 3)
        self._found: dict[int, tuple[Finding, ...]] = {}  # of each run
        self._kept = KeptRun(program, runs.words, runs.order) if progress is None else None
        self._like: HostTimes | None = None

    def mend(self) -> Mended:
        """Where an error, or a CPU, hid what comes after it, and for a line's next finding, there is another round."""
        checks = Checks(self._runs, self._budget, self.progress, device_options(self._program, self._runs.words))
        mended = Mended(self._program, self._program)
        before, found = self._starting_point()
        mended.before = before
        refused: list[Suggestion] = []
        barred: list[Suggestion] = []  # nothing has changed since a run spoke against them
        left: list[Suggestion] = []  # open since an earlier round
        for _ in range(_ROUNDS):
            edits, suggestions = edits_for(found, mended.program, self._loaded(before))
            edits, again = _without(edits, barred)
            suggestions = _with_open([*suggestions, *again], left, edits)
            unreached = _in_order(suggestions)
            mended.suggestions = [self._as_it_stands(one, mended.program) for one in suggestions]
            if not edits:
                mended.unproved = apply_all(unreached, mended.program)
                break
            if before is None:  # a recording told the findings
                before, found = self._losses(found)
                mended.before = before
                continue
            if self._like is None:  # the table has the first run and the last
                self._like = HostTimes.read(before.host)
            if mended.proofs and not self._budget.allows_run:
                mended.unproved = apply_all(unreached, mended.program)
                late = self._not_tried(edits, refused)
                mended.suggestions += [self._as_it_stands(one, mended.program) for one in late]
                break
            here = mended.program
            proof = prove(here, edits, before, self._runner(edits), checks, self._budget, unreached)
            refused = [*again, *(_suggestion(one) for one in proof.outcomes if one.cause is not None)]
            self._take(mended, proof, checks)
            more = any(one.cause is Cause.LINE_TAKEN for one in suggestions)
            if proof.after is None or not (proof.further or more):
                break
            self._budget.free += proof.after.seconds if proof.further else 0.0
            barred = [] if proof.further else refused
            open_ones = [*suggestions, *map(_suggestion, proof.outcomes)]
            left = [_moved_edit(one, here, proof.program) for one in open_ones if one.edit is not None]
            found = tuple(_moved(one, proof.tried, proof.program) for one in self._found[id(proof.after)])
            before = by_lines_of(proof.program, proof.tried, proof.after)
        return mended

    def _loaded(self, before: Ran | None) -> tuple[str, ...]:
        """The files that a run of the unchanged script has imported, as far as one tells them."""
        ran = before or self._last
        return ran.modules if ran is not None else ()

    def _not_tried(self, edits: Sequence[Edit], refused: Sequence[Suggestion]) -> list[Suggestion]:
        """Edits for which no time is left, each with what was said of its line before, if anything was."""
        why = f"not tried within the time of {self._budget.runs} runs: run anymps fix again afterwards"
        known = {_line_of(suggestion.finding): suggestion.why for suggestion in refused}
        return [Suggestion(edit.finding, known.get(_line_of(edit.finding), why), cause=Cause.NO_TIME) for edit in edits]

    def alone(self, program: Program) -> Tried | None:
        """How a program does where nothing answers for CUDA: to its end if there is time, else its first steps.

        None if there is no time at all, or it was over before a loss was computed: that tells nothing of its steps.
        """
        left = self._budget.left
        if left <= 0:
            return None
        whole = self._budget.allows_run
        steps = None if whole else _STEPS
        self.progress.run("without --cuda-as-mps", self._budget.longest if whole else 0)
        tried = self._runs.try_out(program, cuda_as_mps=False, steps=steps, seconds=None if whole else left)
        self._budget.spend(tried.ran.seconds, whole=False)
        if tried.cut and not tried.ran.losses:
            return None
        ran = by_lines_of(self._program, program, tried.ran)
        return replace(tried, ran=ran, cut=not whole or self._runs.order.steps is not None)

    def _starting_point(self) -> tuple[Ran | None, tuple[Finding, ...]]:
        """The script as it stands: from a recording that is there, else by running it."""
        self._last: Ran | None = None
        if self._kept is not None and (known := self._kept.load()) is not None:
            say("reusing the run of the unchanged script from the last anymps fix")
            self._budget.longest = known[0].seconds
            self.progress.number += 1
            return known
        if (last := last_run(self._program, self._runs.words, self._runs.order)) is not None:
            self._last, found = last
            say("reusing the findings of the last anymps run")
            return None, found
        return self._first()

    def _first(self) -> tuple[Ran, tuple[Finding, ...]]:
        self.progress.run("the unchanged script")
        before, found = self._runs.run(self._program, self._kept.save if self._kept is not None else None)
        self._budget.spend(before.seconds)
        return before, found

    def _losses(self, found: tuple[Finding, ...]) -> tuple[Ran, tuple[Finding, ...]]:
        """What a recording does not tell of the unchanged script; all of it where it does something else by now."""
        last = self._last
        assert last is not None
        self.progress.run("the losses of the unchanged script", last.seconds)
        tried = self._runs.try_out(self._program)
        self._budget.spend(tried.ran.seconds)
        if tried.cut or not tried.ran.stops_like(last):
            return self._first()
        return replace(tried.ran, rules=last.rules, told=last.told, host=last.host, error=last.error), found

    def _runner(self, edits: Sequence[Edit]) -> Callable[[Program], Ran]:
        def run(program: Program) -> Ran:
            unchanged = not list(program.differences_from(self._program))
            what = "the unchanged script once more" if unchanged else f"with up to {plural(len(edits), 'change')}"
            self.progress.run(what, self._budget.longest)
            ran, found = self._runs.run(program, like=self._like)
            self._found[id(ran)] = found
            return ran

        return run

    def _take(self, mended: Mended, proof: Proof, checks: Checks) -> None:
        here = mended.program
        mended.program, mended.unproved = proof.program, proof.unproved
        outcomes = tuple(self._told(outcome, here) for outcome in proof.outcomes)
        before = by_lines_of(self._program, here, proof.before)
        after = None if proof.after is None else by_lines_of(self._program, proof.tried, proof.after)
        mended.proofs.append(replace(proof, outcomes=outcomes, before=before, after=after))
        mended.suggestions += [_suggestion(one) for one in outcomes if one.cause is not None]
        if proof.after is not None:  # what one change has mended of another finding needs no word
            rules = proof.after.rules
            mended.suggestions = [one for one in mended.suggestions if rules.get(one.finding.id) or one.cause.is_open]
            mended.notes = list(checks.notes)

    def _told(self, outcome: Outcome, here: Program) -> Outcome:
        """What became of an edit of the program `here`, by the lines of the script as it stands."""
        unseen = tuple(
            (name, tuple(self._line(here, outcome.edit.file, line) for line in lines)) for name, lines in outcome.unseen
        )
        return replace(outcome, edit=_edit_in(outcome.edit, here, self._program), unseen=unseen)

    def _as_it_stands(self, suggestion: Suggestion, here: Program) -> Suggestion:
        return _moved_edit(suggestion, here, self._program)

    def _line(self, here: Program, file: Path, line: int) -> int:
        return line_between(here, self._program, str(file), line)


def _moved(finding: Finding, one: Program, other: Program) -> Finding:
    """A finding in one program, by the lines that another has."""
    if not any(one.differences_from(other)):
        return finding

    def there(site: Site) -> Site:
        return replace(site, line=line_between(one, other, site.file, site.line)) if one.owns(site) else site

    edit = finding.edit
    if edit is not None:
        edit = replace(edit, sites=tuple(map(there, edit.sites)))
    return replace(finding, site=there(finding.site), edit=edit)


def _edit_in(edit: Edit, one: Program, other: Program) -> Edit:
    line = line_between(one, other, str(edit.file), edit.line)
    return replace(edit, line=line, finding=_moved(edit.finding, one, other))


def _moved_edit(suggestion: Suggestion, one: Program, other: Program) -> Suggestion:
    edit = None if suggestion.edit is None else _edit_in(suggestion.edit, one, other)
    return replace(suggestion, finding=_moved(suggestion.finding, one, other), edit=edit)


def _suggestion(outcome: Outcome) -> Suggestion:
    """What is reported about an edit that is not kept; with the edit itself if nothing speaks against it."""
    cause = outcome.cause or Cause.DIFFERS
    return Suggestion(outcome.edit.finding, outcome.why, outcome.edit if outcome.is_open else None, cause)


def _without(edits: Sequence[Edit], refused: Sequence[Suggestion]) -> tuple[list[Edit], list[Suggestion]]:
    """The edits without those that a run of an earlier round speaks against, and what is reported about these."""
    known = {_line_of(one.finding): one for one in refused if one.cause is Cause.DIFFERS}
    kept = [edit for edit in edits if _line_of(edit.finding) not in known]
    left = [edit for edit in edits if _line_of(edit.finding) in known]
    return kept, [replace(known[_line_of(edit.finding)], finding=edit.finding) for edit in left]


def _with_open(
    suggestions: Sequence[Suggestion], left: Sequence[Suggestion], edits: Sequence[Edit]
) -> list[Suggestion]:
    """What is not edited, with the open edits of earlier rounds at whose lines nothing is edited now."""
    made = [*edits, *(one.edit for one in suggestions if one.edit is not None)]
    taken = {(edit.file, edit.line) for edit in made}
    return [*suggestions, *(one for one in left if one.edit and (one.edit.file, one.edit.line) not in taken)]


def _in_order(suggestions: Sequence[Suggestion]) -> list[Edit]:
    """The open edits, as they can be applied."""
    edits = (one.edit for one in suggestions if one.edit is not None)
    return sorted(edits, key=lambda edit: (edit.file, edit.line), reverse=True)


def _line_of(finding: Finding) -> tuple[str, str, str]:
    """What a finding is known by in the next round, in which its line may stand elsewhere."""
    return finding.id, finding.site.file, finding.site.source
