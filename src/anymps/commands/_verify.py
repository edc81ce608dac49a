"""`anymps verify`: record how a Mac behaves in a file, and compare such a file with the virtual device."""

from __future__ import annotations

from pathlib import Path

import click

from anymps._errors import UnsupportedTorchError, UsageError
from anymps._settings import asked_for, variable_of
from anymps._text import plural
from anymps.commands._help import Command
from anymps.commands._options import Finite
from anymps.commands._show import say
from anymps.report import check_file
from anymps.rules import parse_torch_version
from anymps.verify import (
    KINDS,
    Answers,
    Kind,
    ask,
    asked_lines,
    compare,
    comparison_lines,
    device_words,
    mac_of,
    read_answers,
    write_answers,
)

DIFFERENT = 1
_DEFAULT = Path("mac-answers.json.gz")
_MINUTES = 18.0
_MINUTES_TO_READ = 60.0


_FILE = click.Path(path_type=Path)


@click.command(cls=Command, short_help="Record how a Mac behaves, to check the virtual device against it.")
@click.option("--read", type=_FILE, metavar="FILE", help="Show where a Mac's answers differ from this device's.")
@click.option("--out", type=_FILE, metavar="FILE", help=f"Where to write the answers (default {_DEFAULT}).")
@click.option("--only", multiple=True, type=click.Choice(tuple(KINDS)), help="Record only this kind; repeatable.")
@click.option(
    "--minutes",
    type=Finite(min=0, min_open=True, max=1000),
    help=f"Time limit, in minutes (default {_MINUTES:g}).",
)
@click.option("--mac", metavar="MAC", help="The Mac that the virtual device acts as, if there is no real one.")
@click.option("-v", "--verbose", is_flag=True, help="With --read: show every difference.")
def verify(
    read: Path | None, out: Path | None, only: tuple[str, ...], minutes: float | None, mac: str | None, verbose: bool
) -> int:
    """Record how this Mac behaves, in a file that you can attach to an issue.

    This takes less than 20 minutes and needs only torch. The answers that tell most come first. The file holds the
    chip, the memory, the macOS and torch versions, and the answers, but no user, machine or file names. If you
    interrupt the run, it keeps the answers so far.

    On any other machine the virtual device answers instead, so the file says nothing about a Mac. --read FILE makes
    the same calls on the virtual device and shows where its answers differ from the file's. The exit code is then 1 if
    any differ.
    """
    kinds = only or tuple(KINDS)
    if read is not None:
        if out is not None or mac is not None:
            raise UsageError("--read compares with the file's Mac, so it takes neither --out nor --mac")
        return _compare(read_answers(read), kinds, minutes or _MINUTES_TO_READ, verbose)
    if verbose:
        raise UsageError("--verbose needs --read")
    return _ask(out or _DEFAULT, kinds, minutes or _MINUTES, mac)


def _ask(out: Path, kinds: tuple[str, ...], minutes: float, mac: str | None) -> int:
    check_file(out)
    last: list[Answers] = []

    def keep(answers: Answers) -> None:
        write_answers(answers, out)
        last[:] = [answers]

    try:
        answers = ask(kinds, minutes, mac=mac, tell=_tell, keep=keep)
    except KeyboardInterrupt:
        if last:
            say(f"saved {plural(last[0].count, 'answer')} so far in {out}")
        raise
    keep(answers)
    whose = "These are anymps's own answers, from its virtual device: " if answers.virtual else "This Mac: "
    click.echo(whose + device_words(answers))
    click.echo("\n".join(asked_lines(answers)))
    click.echo(f"Saved {plural(answers.count, 'answer')} in {out}.", nl=False)
    click.echo("" if answers.virtual else " Please attach the file to an issue in the project.")
    return 0


def _compare(mac: Answers, kinds: tuple[str, ...], minutes: float, verbose: bool) -> int:
    _check_release(mac)
    known = mac_of(mac)
    asked = {kind: list(cases) for kind, cases in mac.answers.items() if kind in kinds}
    mac.answers = {kind: cases for kind, cases in mac.answers.items() if kind in asked}
    whose = "anymps's own answers" if mac.virtual else "a Mac's answers"
    click.echo(f"{whose[0].upper()}{whose[1:]}, {mac.made}: {device_words(mac)}")
    if known is None:
        click.echo("anymps does not know this Mac, so the virtual device acts as its default one.")
    kernels = asked_for("kernels")
    if kernels not in (None, "cpu"):
        click.echo(f"PyTorch's own kernels answer on the virtual device: {variable_of('kernels')}={kernels}.")
    ours = ask(tuple(asked), minutes, mac=known, wanted=asked, tell=_tell)
    if not ours.virtual:
        click.echo(f"Compared with this Mac's own answers: {device_words(ours)}")
    comparison = compare(mac, ours)
    click.echo("\n".join(comparison_lines(comparison, everything=verbose)))
    return DIFFERENT if comparison.differences else 0


def _check_release(mac: Answers) -> None:
    """Raises UsageError if the file is from another release of torch: what operators do depends on it."""
    from anymps.rules import installed_torch

    here = installed_torch().version
    try:
        theirs = parse_torch_version(str(mac.machine["torch"]))
    except UnsupportedTorchError:
        raise UsageError("the file does not name a release of torch") from None
    if theirs.release != here.release:
        wanted = ".".join(map(str, theirs.release))
        raise UsageError(f"the file is from torch {theirs}, but this is {here}: read it with torch {wanted}")


def _tell(kind: Kind) -> None:
    say(f"{kind.name} ({kind.what})")
