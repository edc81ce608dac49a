"""`anymps fix`: fixes a script's findings, checks the changes by running the script, and prints the patch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._command_settings import FixSettings
from anymps._settings import Settings, asked_for, variable_of
from anymps._text import duration, listed, tell
from anymps.commands._judge import Judge
from anymps.commands._script_command import script_command
from anymps.commands._show import say
from anymps.commands._target import Target
from anymps.report import clean, plural

if TYPE_CHECKING:
    from anymps.fix import Checked, Edit, Ran, Suggestion


@script_command(
    "fix",
    "Fix a script's findings, and check the changes.",
    module="Fix a module, as `python -m` runs it; all later arguments go to it.",
)
def fix(asked: FixSettings, module: str | None, words: tuple[str, ...]) -> int:
    """Fix a script's findings, check the changes by running the script, and print the patch.

    The script runs once as it is, and the changed script once on mps and once without a GPU, with the same seeds. What
    it computes, prints and writes must stay the same. Otherwise the patch is cut back to the changes that need no
    check, and the others are printed as suggestions. Files that the script writes are discarded. The patch goes to
    standard output, everything else to stderr. The script's own modules are changed too.
    """
    target = Target.named(module, words, "fix")
    target.check()
    from anymps.device import build
    from anymps.findings import read_settings
    from anymps.fix import (
        Program,
        Runs,
        check_may_write,
        edits_for,
        file_patch,
        how_to_apply,
        may_write,
        patch_folder,
        write_all,
    )
    from anymps.fix import check as check_edits
    from anymps.runs import Order
    from anymps.source import cpu_option

    program = Program.read(target.file, Path.cwd() if target.is_module else None)
    if asked.write:
        check_may_write(program.main.path, asked.force)
    asked = asked.filled(read_settings(target.place))
    build()  # here, if ever: what runs the script may write nothing of the user's, and so keep no native core
    answered = bool(asked_for("cuda_as_mps", asked.cuda_as_mps))
    os.environ.pop(variable_of("cuda_as_mps"), None)  # the changed script has to do without
    order = Order(tuple(target.words), device=Settings(**asked.device()), steps=asked.steps, seconds=asked.seconds)
    runs = Runs(order, say)
    before, findings = runs.first(program, answered, lambda recording: Judge(target.file).judge(recording).findings)
    texts = (program.text_of(str(file)) for file in program.files(before.modules))
    option = cpu_option(texts, target.arguments)
    edits, suggestions = edits_for(findings, program, before.modules)
    if not edits:
        if before.used and not before.error and not suggestions:
            ran = "the first steps of the script run" if before.early else "the script runs"
            say(f"nothing needs a fix: {ran} on mps, without findings")
        else:
            say("nothing can be fixed automatically")
        _tell_stop("the script stops", before)
        _suggest(suggestions)
        return 0
    done = check_edits(program, edits, before, runs.run, answered=answered, steps=asked.steps, option=option)
    differences = list(done.program.differences())
    folder = patch_folder((new.path for _, new in differences), program.root)
    for old, new in differences:
        sys.stdout.write(file_patch(old, new, folder))
    sys.stdout.flush()
    _tell(done, before, program.main.path.resolve())
    passed = before.trail[-1:] if done.after is not None and not done.after.error else ()  # a line that stops no more
    _suggest([*done.left, *suggestions], passed)
    say(f"all runs took {duration(1e9 * sum(runs.spent))}; one of the script takes {duration(1e9 * before.seconds)}")
    if asked.write and differences:
        for old, _ in differences:
            check_may_write(old.path, asked.force)
        write_all({new.path: new.data for _, new in differences}, {old.path: old.data for old, _ in differences})
        for _, new in differences:
            say(f"{new.path} is written")
    elif differences:
        write = "--write" if all(may_write(old.path) for old, _ in differences) else "--write --force"
        say(f"nothing was changed on disk: {how_to_apply(folder)}, or run the same command with {write}")
    return 0


def _tell(done: Checked, before: Ran, main: Path) -> None:
    """What is changed, how far the script comes then, and what agrees."""
    if not done.kept:
        say("no change is made")
        _tell_stop("the script stops", done.unchanged)
        return
    say(f"{plural(len(done.kept), 'change')}: {_names(done.kept, main)}")
    after = done.after
    alike = after is not None and bool(after.error) and after.stops_like(done.unchanged)
    _tell_stop(f"before{' and after' if alike else ''}, the script stops", done.unchanged)
    if after is None:
        tell("  these changes choose no device")
    elif after.error and not alike:
        _tell_stop("after, it stops", after)
        tell("  mend that line in the patched script, and run anymps fix again: an error hides what comes after it")
    elif not after.error and not after.used:
        tell("  the changed script runs, but not on mps")
    elif not after.error:
        what = "the first steps of the changed script run" if after.early or after.cut else "the changed script runs"
        tell(f"  {what} on mps")
    for note in done.notes:
        tell(f"  {clean(note)}")


def _tell_stop(how: str, ran: Ran) -> None:
    """How a run ended, if not well."""
    if ran.error:
        tell(f"  {clean(f'{how}{ran.place}: {ran.error}')}")


def _suggest(suggestions: Sequence[Suggestion], passed: Sequence[tuple[str, int]] = ()) -> None:
    """What is left to the user: each finding with its line, why it is not fixed, and what to do.

    `passed` are lines that stopped the unchanged script, and to which the changed one came without an error.
    """
    for suggestion in suggestions:
        finding = suggestion.finding
        place = f"{Path(finding.site.file).name}:{finding.site.line}" if finding.site.file else ""
        stays = finding.site.file_line not in passed
        why = f"not changed: {suggestion.why}" if stays else "needs no change: the changed script runs past it"
        tell("  " + clean("  ".join(filter(None, (finding.id, place, why)))))
        if stays:
            tell(f"         {clean(finding.fix)}")


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
