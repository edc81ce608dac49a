"""From a script to its fixed form: runs, edits and proofs, until nothing more can be fixed or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from anymps.commands._show import say
from anymps.commands.fix._checks import Checks
from anymps.commands.fix._earlier_runs import KeptRun, last_run
from anymps.commands.fix._runs import Progress, Runs, Tried
from anymps.findings import Finding
from anymps.fix import (
    NOT_RUN,
    Budget,
    Edit,
    Program,
    Proof,
    Ran,
    Suggestion,
    apply_all,
    device_options,
    edits_for,
    prove,
)
from anymps.forecast import HostTimes
from anymps.report import plural

_ROUNDS = 5
"""An error hides what comes after it; so many in turn are mended at once."""
_STEPS = 5


@dataclass
class Mended:
    """A program with all that is proved; `unproved` is that with the edits as well to which the run did not come."""

    program: Program
    unproved: Program
    proofs: list[Proof] = field(default_factory=list)
    suggestions: list[Suggestion] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreached: list[Edit] = field(default_factory=list)
    """What `unproved` has beyond the edits of the proofs: at lines to which no run is known to have come."""
    before: Ran | None = None
    """The script as it stands; None where a recording told that there is nothing to do."""


class Mender:
    """Mends one program. `budget` says how much time its runs may take."""

    def __init__(self, program: Program, runs: Runs, budget: Budget) -> None:
        self._program = program
        self._runs = runs
        self._budget = budget
        self._progress = Progress(4 if runs.order.asked.cuda_as_mps else 3)  # the last one without --cuda-as-mps
        self._found: dict[int, tuple[Finding, ...]] = {}  # of each run
        self._kept = KeptRun(program, runs.words, runs.order)
        self._like: HostTimes | None = None

    def mend(self) -> Mended:
        """Where an error hid what comes after it, there is another round."""
        checks = Checks(self._runs, self._budget, self._progress, device_options(self._program, self._runs.words))
        mended = Mended(self._program, self._program)
        before, found = self._starting_point()
        mended.before = before
        refused: list[Suggestion] = []
        for _ in range(_ROUNDS):
            edits, mended.suggestions = edits_for(found, mended.program, self._loaded(before))
            mended.unreached = [suggestion.edit for suggestion in mended.suggestions if suggestion.edit is not None]
            if not edits:
                mended.unproved = apply_all(mended.unreached, mended.program)
                break
            if before is None:  # a recording told the findings
                before, found = self._losses(found)
                continue
            if self._like is None:  # the table has the first run and the last
                self._like = HostTimes.read(before.host)
            if mended.proofs and not self._budget.allows_run:
                mended.unproved = apply_all(mended.unreached, mended.program)
                mended.suggestions += self._not_tried(edits, refused)
                break
            proof = prove(mended.program, edits, before, self._runner(edits), checks, self._budget, mended.unreached)
            self._take(mended, proof, checks)
            kept = [outcome for outcome in proof.outcomes if not outcome.why]
            refused = [Suggestion(outcome.edit.finding, outcome.why) for outcome in proof.outcomes if outcome.why]
            if proof.after is None or not before.error or before.stops_like(proof.after) or not kept:
                break
            if any(not outcome.ran for outcome in proof.outcomes):
                break  # the lines of its findings are those of another text
            before, found = proof.after, self._found[id(proof.after)]
        return mended

    def _loaded(self, before: Ran | None) -> tuple[str, ...]:
        """The files that a run of the unchanged script has imported, as far as one tells them."""
        ran = before or self._last
        return ran.modules if ran is not None else ()

    def _not_tried(self, edits: Sequence[Edit], refused: Sequence[Suggestion]) -> list[Suggestion]:
        """Edits for which no time is left, each with what was said of its line before, if anything was."""
        why = f"not tried within the time of {self._budget.runs} runs: run anymps fix again afterwards"
        known = {_line_of(suggestion.finding): suggestion.why for suggestion in refused}
        return [Suggestion(edit.finding, known.get(_line_of(edit.finding), why)) for edit in edits]

    def alone(self, program: Program) -> Tried | None:
        """How a program does where nothing answers for CUDA: to its end if there is time, else its first steps.

        None if there is no time at all, or it was over before anything was on mps.
        """
        left = self._budget.left
        if left <= 0:
            return None
        whole = self._budget.allows_run
        steps = None if whole else _STEPS
        self._progress.run("without --cuda-as-mps", self._budget.longest if whole else 0)
        tried = self._runs.try_out(program, cuda_as_mps=False, steps=steps, seconds=None if whole else left)
        self._budget.spend(tried.ran.seconds, whole=False)
        return (
            None
            if tried.cut and not tried.used
            else replace(tried, cut=not whole or self._runs.order.steps is not None)
        )

    def _starting_point(self) -> tuple[Ran | None, tuple[Finding, ...]]:
        """The script as it stands: from a recording that is there, else by running it."""
        self._last: Ran | None = None
        if (known := self._kept.load()) is not None:
            say("reusing the run of the unchanged script from the last anymps fix")
            self._budget.longest = known[0].seconds
            self._progress.number += 1
            return known
        if (last := last_run(self._program, self._runs.words, self._runs.order)) is not None:
            self._last, found = last
            say("reusing the findings of the last anymps run")
            return None, found
        return self._first()

    def _first(self) -> tuple[Ran, tuple[Finding, ...]]:
        self._progress.run("the unchanged script")
        before, found = self._runs.run(self._program, self._kept.save)
        self._budget.spend(before.seconds)
        return before, found

    def _losses(self, found: tuple[Finding, ...]) -> tuple[Ran, tuple[Finding, ...]]:
        """What a recording does not tell of the unchanged script; all of it where it does something else by now."""
        last = self._last
        assert last is not None
        self._progress.run("the losses of the unchanged script", last.seconds)
        tried = self._runs.try_out(self._program)
        self._budget.spend(tried.ran.seconds)
        if tried.cut or not tried.ran.stops_like(last):
            return self._first()
        return replace(tried.ran, rules=last.rules, told=last.told, host=last.host, error=last.error), found

    def _runner(self, edits: Sequence[Edit]) -> Callable[[Program], Ran]:
        def run(program: Program) -> Ran:
            unchanged = not list(program.differences_from(self._program))
            what = "the unchanged script once more" if unchanged else f"with up to {plural(len(edits), 'change')}"
            self._progress.run(what, self._budget.longest)
            ran, found = self._runs.run(program, like=self._like)
            self._found[id(ran)] = found
            return ran

        return run

    def _take(self, mended: Mended, proof: Proof, checks: Checks) -> None:
        mended.proofs.append(proof)
        mended.program, mended.unproved = proof.program, proof.unproved
        whys = [Suggestion(outcome.edit.finding, outcome.why) for outcome in proof.outcomes if outcome.why]
        mended.suggestions += whys
        if proof.after is not None:  # what one change has mended of another finding needs no word
            rules = proof.after.rules
            mended.suggestions = [
                suggestion
                for suggestion in mended.suggestions
                if rules.get(suggestion.finding.id) or suggestion.why == NOT_RUN or suggestion.edit is not None
            ]
            mended.notes = list(checks.notes)


def _line_of(finding: Finding) -> tuple[str, str, str]:
    """What a finding is known by in the next round, in which its line may stand elsewhere."""
    return finding.id, finding.site.file, finding.site.source
