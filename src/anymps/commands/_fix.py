"""`anymps fix`: a script's findings mended as far as that can be proved, as a patch."""

from __future__ import annotations

__all__ = ["fix"]

import difflib
import json
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anymps._errors import UsageError
from anymps.commands._fix_runs import Runs
from anymps.commands._proof_session import Order, ProofSession
from anymps.commands._run import ScriptCommand
from anymps.commands._runner import run_target
from anymps.commands._show import say
from anymps.commands._target import Target
from anymps.findings import NOTHING_RAN
from anymps.report import plural

if TYPE_CHECKING:
    from anymps.fix import Edit, Program, Proof, Ran, Script, Suggestion

_ROUNDS = 5
"""An error hides what comes after it; so many in turn are mended at once."""


@click.command(
    cls=ScriptCommand,
    short_help="Mend a script's findings as far as that can be proved.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.option("--mac", metavar="MAC", help='The Mac to be: "M3 Pro 18GB", "M1 8GB, macOS 14.5".')
@click.option(
    "--fallback/--no-fallback", default=None, help="Run operators without an MPS kernel on the CPU, or raise."
)
@click.option(
    "--cuda-as-mps",
    is_flag=True,
    help='Let mps answer for CUDA: torch.cuda, .cuda() and "cuda" (ANYMPS_CUDA_AS_MPS=1).',
)
@click.option("--write", is_flag=True, help="Apply the patch.")
@click.option("--force", is_flag=True, help="With --write: also where git does not keep a file as it is.")
@click.option("--seconds", type=click.FloatRange(1), default=600, show_default=True, help="How long one run may take.")
@click.option(
    "--steps", type=click.IntRange(1), help="End each run after so many steps of the optimizer.  [default: to its end]"
)
@click.option("--prove", hidden=True)
@click.argument("words", metavar="SCRIPT [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def fix(
    mac: str | None,
    fallback: bool | None,
    cuda_as_mps: bool,
    write: bool,
    force: bool,
    seconds: float,
    steps: int | None,
    prove: str | None,
    words: tuple[str, ...],
) -> int:
    """Mend a script's findings, as far as each change can be proved, and print the patch.

    The script runs on the virtual Mac before and after each change with the same seeds; what it writes is dropped. A
    change is proved if the losses and the printed numbers agree, its finding is gone and none is new. The patch goes to
    standard output, everything else to stderr. The script's own modules are mended, too.
    """
    if not words:
        raise UsageError("name a script (anymps fix --help)")
    target = Target(words[0], words[1:])
    if prove is not None:
        return run_target(target, ProofSession(Order(**json.loads(prove))))
    if find_spec("libcst") is None:
        raise UsageError("anymps fix needs libcst: pip install 'anymps[fix]'")
    target.check()
    from anymps.fix import Program, check_may_write, write_all

    program = Program.read(Path(words[0]))
    if write and not force:
        check_may_write(program.main.path)
    order = Order("", mac=mac, fallback=fallback, cuda_as_mps=cuda_as_mps, steps=steps)
    runs = Runs(words, order, seconds)
    fixed, proofs, suggestions = _mend(program, runs)
    differences = list(fixed.differences())
    for old, new in differences:
        _print_patch(old, new)
    _tell(fixed, proofs, suggestions)
    if cuda_as_mps and differences:
        say(_alone(runs.without_cuda().run(fixed)[0]))
    if write and differences:
        if not force:
            for old, _ in differences:
                check_may_write(old.path)
        write_all({new.path: new.data for _, new in differences}, {old.path: old.data for old, _ in differences})
        for _, new in differences:
            say(f"{new.path} is written")
    return 0


def _mend(program: Program, runs: Runs) -> tuple[Program, list[Proof], list[Suggestion]]:
    """The program with all that is proved. Where an error hid what comes after it, there is another round."""
    from anymps.fix import Suggestion, edits_for, prove

    fixed, proofs = program, []
    suggestions: list[Suggestion] = []
    for _ in range(_ROUNDS):
        before, found = runs.run(fixed)
        edits, suggestions = edits_for(found, fixed)
        if not edits:
            break
        proof = prove(fixed, edits, before, lambda changed: runs.run(changed)[0])
        proofs.append(proof)
        suggestions += [Suggestion(it.edit.finding, it.why) for it in proof.outcomes if it.why]
        fixed = proof.program
        if proof.after is not None:  # what one change has mended of another finding needs no word
            suggestions = [it for it in suggestions if proof.after.rules.get(it.finding.id)]
        if proof.after is None or not (before.error and any(not it.why for it in proof.outcomes)):
            break
    return fixed, proofs, suggestions


def _print_patch(old: Script, new: Script) -> None:
    name = new.path.as_posix()
    lines = difflib.unified_diff(
        old.text.splitlines(keepends=True), new.text.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    for line in lines:
        sys.stdout.write(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    sys.stdout.flush()


def _tell(fixed: Program, proofs: Iterable[Proof], suggestions: Iterable[Suggestion]) -> None:
    proofs, suggestions = list(proofs), list(suggestions)
    kept = [it.edit for proof in proofs for it in proof.outcomes if not it.why]
    if kept:
        say(f"{plural(len(kept), 'change')} proved: {_names(kept, fixed.main.path.resolve())}")
        first, last = proofs[0].before, next(it.after for it in reversed(proofs) if it.after is not None)
        for line in _table(first, last):
            say_plain(line)
    else:
        say("no change was proved" if proofs else "there is nothing to mend by itself")
    for suggestion in suggestions:
        finding = suggestion.finding
        say_plain(f"  {finding.id}  {_place(finding.site.file, finding.site.line)}  not changed: {suggestion.why}")
        say_plain(f"         {finding.fix}")


def _alone(ran: Ran) -> str:
    """How the changed script does where nothing answers for CUDA, as on a Mac."""
    if ran.error:
        return f"without --cuda-as-mps the changed script stops: {ran.error}"
    if NOTHING_RAN.id in ran.rules:
        return "the changed script runs without --cuda-as-mps, but nothing of it on mps"
    return "the changed script runs on mps without --cuda-as-mps"


def _names(edits: Iterable[Edit], main: Path) -> str:
    """`MPS409 in lines 8 and 9, MPS812 in line 3 of model.py`."""
    lines: dict[tuple[str, Path], list[int]] = {}
    for edit in sorted(edits, key=lambda it: (it.file != main, it.file, it.line)):
        lines.setdefault((edit.finding.id, edit.file), []).append(edit.line)
    return ", ".join(
        f"{rule} in {'line' if len(places) == 1 else 'lines'} {', '.join(map(str, places))}"
        + (f" of {file.name}" if file != main else "")
        for (rule, file), places in lines.items()
    )


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}" if file else "no line"


def _table(before: Ran, after: Ran) -> list[str]:
    """What differs between two runs; how the first one ended, if not well; and what agrees."""
    rows = [("", "before", "after")]
    names = list(dict.fromkeys([*before.told, *after.told]))
    rows += [(name, before.told.get(name, ""), after.told.get(name, "")) for name in names]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"  {name:{widths[0]}}  {one:{widths[1]}}  {two}".rstrip() for name, one, two in rows]
    if before.error:
        return [*lines, f"  before, the script stopped: {before.error}"]
    agreed = [f"{plural(len(numbers), what)}" for what, numbers in _compared(after) if numbers]
    return [*lines, f"  {' and '.join(agreed)} agree"] if agreed else lines


def _compared(ran: Ran) -> list[tuple[str, tuple[float, ...]]]:
    return [("loss value", ran.losses), ("printed number", ran.printed)]


def say_plain(text: str) -> None:
    """A line on stderr, without our name before it."""
    print(text, file=sys.stderr)
