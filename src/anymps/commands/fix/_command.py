"""`anymps fix`: fixes a script's findings, keeps the changes that runs prove safe, and prints the patch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._command_settings import FixSettings
from anymps._errors import UsageError
from anymps._text import duration, listed
from anymps.commands._runner import run_target
from anymps.commands._script_command import script_command
from anymps.commands._show import say
from anymps.commands._target import Target
from anymps.commands.fix._runs import Runs, Tried
from anymps.commands.isolated import Order, ProofSession
from anymps.report import clean, plural

if TYPE_CHECKING:
    from anymps.commands.fix._mend import Mended
    from anymps.fix import Edit, Outcome, Ran


@script_command("fix", "Fix a script's findings, keeping only proven changes.", private="--prove")
def fix(asked: FixSettings, prove: str | None, words: tuple[str, ...]) -> int:
    """Fix a script's findings, keep only changes that the runs prove safe, and print the patch.

    The script runs on the virtual Mac before and after the changes with the same seeds, and its first steps without a
    GPU and with each of its options that names a device; files that it writes are discarded. A change is proven if the
    losses and the printed numbers agree, its finding is gone and none is new. The patch goes to standard output,
    everything else to stderr. The script's own modules are changed too.
    """
    if not words:
        raise UsageError("name a script (anymps fix --help)")
    target = Target(words[0], words[1:])
    if prove is not None:
        return run_target(target, ProofSession(Order.read(prove)))
    target.check()
    from anymps.commands.fix._mend import Mender
    from anymps.device import build
    from anymps.findings import read_settings
    from anymps.fix import Budget, Program, check_may_write, file_patch, how_to_apply, patch_folder, write_all

    program = Program.read(Path(words[0]))
    if asked.write:
        check_may_write(program.main.path, asked.force)
    asked = asked.filled(read_settings(program.main.path))
    build()  # here, if ever: what runs the script may write nothing of the user's, and so keep no native core
    os.environ.setdefault("PYTHONHASHSEED", "0")  # the order of a set of texts is a seed, too
    order = Order("", asked, steps=asked.steps)
    budget = Budget(asked.runs)
    mender = Mender(program, Runs(words, order, asked.seconds), budget)
    mended = mender.mend()
    fixed = mended.unproved if asked.unproved else mended.program
    differences = list(fixed.differences())
    not_run = [outcome.edit for proof in mended.proofs for outcome in proof.outcomes if not outcome.ran]
    not_run = [*not_run, *mended.unreached] if asked.unproved else []
    folder = patch_folder((new.path for _, new in differences), program.root)
    for old, new in differences:
        sys.stdout.write(file_patch(old, new, folder, not_run))
    sys.stdout.flush()
    _tell(mended, not_run)
    if not asked.cuda_as_mps and _stopped_after_the_choice(mended):
        say("with --cuda-as-mps, anymps fix also looks at the line that stops the script on mps")
    alone = _result_without_cuda(mender.alone(fixed)) if asked.cuda_as_mps and differences else ""
    if budget.spent:
        say(f"all runs took {duration(1e9 * budget.spent)}; one of the script takes {duration(1e9 * budget.longest)}")
    if alone:
        say(alone)
    if asked.write and differences:
        for old, _ in differences:
            check_may_write(old.path, asked.force)
        write_all({new.path: new.data for _, new in differences}, {old.path: old.data for old, _ in differences})
        for _, new in differences:
            say(f"{new.path} is written")
    elif differences:
        say(f"nothing was changed on disk: {how_to_apply(folder)}, or run the same command with --write")
    return 0


def _tell(mended: Mended, not_run: Sequence[Edit]) -> None:
    """What was proved and what was not. The changes of `not_run` are made without a proof."""
    proofs, main = mended.proofs, mended.program.main.path.resolve()
    kept = [outcome.edit for proof in proofs for outcome in proof.outcomes if not outcome.why]
    if kept:
        say(f"{plural(len(kept), 'change')} proven: {_names(kept, main)}")
        first, last = proofs[0].before, next(proof.after for proof in reversed(proofs) if proof.after is not None)
        for line in [*_table(first, last), *(f"  {clean(note)}" for note in mended.notes)]:
            say_plain(line)
        for line in _unseen([outcome for proof in proofs for outcome in proof.outcomes], main):
            say_plain(line)
    else:
        say("no change could be proven" if proofs else "nothing can be fixed automatically")
        if mended.before is not None and mended.before.error:
            for line in _stop("the script stops", mended.before):
                say_plain(line)
    if not_run:
        say(f"{plural(len(not_run), 'change')} not proven: {_names(not_run, main)}")
    made = [edit.finding for edit in not_run]
    for suggestion in mended.suggestions:
        finding = suggestion.finding
        if finding in made:
            continue
        place = _place(finding.site.file, finding.site.line)
        say_plain("  " + "  ".join(filter(None, (finding.id, place, f"not changed: {suggestion.why}"))))
        say_plain(f"         {finding.fix}")


def _stopped_after_the_choice(mended: Mended) -> bool:
    """Whether a script that chose between CUDA and the CPU stops as soon as it chooses mps."""
    return any(
        "cuda" in suggestion.finding.site.source
        and "mps" in suggestion.finding.fix
        and suggestion.why.startswith("the script stops")
        for suggestion in mended.suggestions
    )


def _result_without_cuda(tried: Tried | None) -> str:
    """How the changed script does where nothing answers for CUDA, as on a Mac."""
    if tried is None:
        return "no time was left to run the changed script without --cuda-as-mps (--runs allows more)"
    what = "the first steps of the changed script run" if tried.cut else "the changed script runs"
    if tried.ran.error:
        return f"without --cuda-as-mps the changed script stops: {tried.ran.error}"
    if not tried.used:
        return f"{what} without --cuda-as-mps, but not on mps"
    return f"{what} on mps without --cuda-as-mps"


def _names(edits: Iterable[Edit], main: Path) -> str:
    """Each rule with its lines: `in lines 8 and 9`, `in line 3 of model.py`."""
    lines: dict[tuple[str, Path], list[int]] = {}
    for edit in sorted(edits, key=lambda change: (change.file != main, change.file, change.line)):
        lines.setdefault((edit.finding.id, edit.file), []).append(edit.line)
    return ", ".join(
        f"{rule} in {'line' if len(places) == 1 else 'lines'} {', '.join(map(str, places))}"
        + (f" of {file.name}" if file != main else "")
        for (rule, file), places in lines.items()
    )


def _unseen(outcomes: Iterable[Outcome], main: Path) -> Iterator[str]:
    """What the runs did not show of kept changes: later lines that get a tensor now where they had a number."""
    for outcome in sorted(outcomes, key=lambda one: (one.edit.file != main, one.edit.file, one.edit.line)):
        edit = outcome.edit
        file = f" of {edit.file.name}" if edit.file != main else ""
        for name, lines in outcome.unseen:
            those = f"line {lines[0]}" if len(lines) == 1 else f"lines {listed(list(map(str, lines)))}"
            yield f"  not seen: {those}{file}, where `{name}` of line {edit.line} holds tensors now, not numbers"


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}" if file else ""


def _table(before: Ran, after: Ran) -> list[str]:
    """What differs between two runs; how the first one ended, if not well; and what agrees."""
    rows = [("", "before", "after")]
    names = list(dict.fromkeys([*before.told, *after.told]))
    rows += [(name, before.told.get(name, ""), after.told.get(name, "")) for name in names]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"  {name:{widths[0]}}  {one:{widths[1]}}  {two}".rstrip() for name, one, two in rows]
    if before.error and not before.stops_like(after):
        return [*lines, *_stop("before, the script stopped", before)]
    if after.error:
        lines.append(f"  before and after, the script stops: {after.error}")
    agreed = [f"{plural(len(numbers), what)}" for what, numbers in _compared(after) if numbers]
    return [*lines, f"  {' and '.join(agreed)} agree"] if agreed else lines


def _stop(how: str, ran: Ran) -> list[str]:
    """How a run ended, with the traceback of the process that ended it where the script had started one."""
    worker = ["in a process that it started:", *ran.worker.splitlines()] if ran.worker else []
    return [f"  {clean(line)}" for line in (f"{how}: {ran.error}", *worker)]


def _compared(ran: Ran) -> list[tuple[str, tuple[float, ...]]]:
    return [("loss value", ran.losses), ("printed number", ran.printed)]


def say_plain(text: str) -> None:
    """A line on stderr, without our name before it."""
    print(text, file=sys.stderr)
