"""`anymps fix`: fixes a script's findings, keeps the changes that runs prove safe, and prints the patch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._command_settings import FixSettings
from anymps._errors import UsageError
from anymps._said import tell
from anymps._text import duration, listed
from anymps.commands._runner import run_target
from anymps.commands._script_command import script_command
from anymps.commands._show import say
from anymps.commands._target import Target
from anymps.commands.fix._runs import Runs
from anymps.commands.isolated import Order, ProofSession
from anymps.report import clean, plural

if TYPE_CHECKING:
    from anymps.commands.fix._mend import Mended
    from anymps.fix import Edit, Outcome, Ran, Suggestion


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
    from anymps.commands.fix._onwards import mend_on, result_alone
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
    done = mend_on(program, Runs(words, order, asked.seconds), budget)
    mended = done.mended
    fixed = mended.unproved if asked.unproved else mended.program
    differences = list(fixed.differences())
    unproved = mended.open if asked.unproved else []
    folder = patch_folder((new.path for _, new in differences), program.root)
    for old, new in differences:
        sys.stdout.write(file_patch(old, new, folder, unproved))
    sys.stdout.flush()
    _tell(mended, unproved, "on mps, " if done.alone is not None else "")
    alone = ""
    if asked.cuda_as_mps and differences:
        alone = result_alone(done.mender.alone(fixed), "--cuda-as-mps")
    elif done.alone is not None:
        alone = result_alone(done.alone, "")
    if done.note:
        say(done.note)
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


def _tell(mended: Mended, unproved: Sequence[Suggestion], where: str = "") -> None:
    """What was proved and what was not. The changes of `unproved` are made without a proof.

    `where` the first run was, if not where the script runs by itself: `on mps, `.
    """
    proofs, main = mended.proofs, mended.program.main.path.resolve()
    kept, after = mended.kept, mended.after
    if kept and after is not None:
        say(f"{plural(len(kept), 'change')} proven: {_names([outcome.edit for outcome in kept], main)}")
        for line in [*_table(proofs[0].before, after, where), *(f"  {clean(note)}" for note in mended.notes)]:
            say_plain(line)
        for line in _unseen(kept, main):
            say_plain(line)
    else:
        say("no change could be proven" if proofs else "nothing can be fixed automatically")
        if mended.before is not None and mended.before.error:
            for line in _stop("the script stops", mended.before):
                say_plain(line)
    made = [one.edit for one in unproved if one.edit is not None]
    if made:
        say(f"{plural(len(made), 'change')} not proven: {_names(made, main)}")
    for suggestion in mended.suggestions:
        finding = suggestion.finding
        if suggestion in unproved:
            continue
        place = _place(finding.site.file, finding.site.line)
        anyway = " (--unproved changes it anyway)" if suggestion.cause.is_open else ""
        say_plain("  " + "  ".join(filter(None, (finding.id, place, f"not changed: {suggestion.why}{anyway}"))))
        say_plain(f"         {finding.fix}")


def _names(edits: Iterable[Edit], main: Path) -> str:
    """Each rule with its lines: `in lines 8 and 9`, `in line 3 of model.py`."""
    lines: dict[tuple[str, Path], list[int]] = {}
    for edit in sorted(edits, key=lambda change: (change.file != main, change.file, change.line)):
        lines.setdefault((edit.finding.id, edit.file), []).append(edit.line)
    return ", ".join(
        f"{rule} in {'line' if len(places) == 1 else 'lines'} {listed(list(map(str, places)))}"
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


def _table(before: Ran, after: Ran, where: str = "") -> list[str]:
    """What differs between two runs; how the first one ended, if not well; and what agrees."""
    names = list(dict.fromkeys([*before.told, *after.told]))
    rows = [("", "before", "after")] if names else []
    rows += [(name, before.told.get(name, ""), after.told.get(name, "")) for name in names]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = [f"  {name:{widths[0]}}  {one:{widths[1]}}  {two}".rstrip() for name, one, two in rows]
    if before.error and not before.stops_there_too(after):
        now = _stop(f"after, {where}it stops", after) if after.error else []
        return [*lines, *_stop(f"before, {where}the script stopped", before), *now]
    if after.error:
        lines.append(f"  before and after, the script stops{after.place}: {clean(after.error)}")
    agreed = [f"{plural(len(numbers), what)}" for what, numbers in _compared(after) if numbers]
    return [*lines, f"  {' and '.join(agreed)} agree"] if agreed else lines


def _stop(how: str, ran: Ran) -> list[str]:
    """How a run ended, with the traceback of the process that ended it where the script had started one."""
    worker = ["in a process that it started:", *ran.worker.splitlines()] if ran.worker else []
    return [f"  {clean(line)}" for line in (f"{how}{ran.place}: {ran.error}", *worker)]


def _compared(ran: Ran) -> list[tuple[str, tuple[float, ...]]]:
    return [("loss value", ran.losses), ("printed number", ran.printed)]


def say_plain(text: str) -> None:
    """A line on stderr, without our name before it."""
    tell(text)
