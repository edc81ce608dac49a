"""`anymps coverage`: what a torch release does with an operator on mps."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

import click

from anymps._command_settings import CoverageSettings
from anymps._errors import UnsupportedTorchError, UsageError
from anymps.commands._help import Command
from anymps.commands._options import takes
from anymps.findings import equivalent
from anymps.rules import (
    FIRST_RELEASE,
    LAST_RELEASE,
    Coverage,
    Kind,
    find_operators,
    installed_torch,
    nearest_operators,
    parse_torch_version,
)
from anymps.rules import coverage as coverage_of
from anymps.rules.texts import BackendText

Release = tuple[int, int]

_MOST_IN_FULL = 12  # overloads; more of them get one line each
_WIDTH = 100

_KINDS = {
    Kind.NATIVE: "native: it has an MPS kernel",
    Kind.COMPOSITE: "composite: made of other operators, whose kernels count",
    Kind.ALWAYS_FALLBACK: "always on the CPU, regardless of PYTORCH_ENABLE_MPS_FALLBACK",
    Kind.MISSING: "missing: raises NotImplementedError, or runs on the CPU with PYTORCH_ENABLE_MPS_FALLBACK=1",
    Kind.ELSEWHERE: "of another backend: neither MPS nor the CPU has a kernel",
}


@click.command(cls=Command, short_help="Show what torch does with an operator on mps.")
@click.argument("operator")
@takes("coverage")
def coverage(asked: CoverageSettings, operator: str) -> int:
    """Show what torch does with an operator on mps.

    Name an operator as you would write it: take, aten::take.out, torch.linalg.qr, or a pattern such as '*pool*'. The
    answer is read from the installed torch's files, without importing it.
    """
    release = _release(asked.release)
    names = find_operators(operator)
    if not names:
        raise UsageError(f"torch has no operator {operator!r}{_nearest(operator)} (anymps coverage --help)")
    answers = [coverage_of(name, release) for name in names]
    short = len(answers) > _MOST_IN_FULL
    lines = _short_lines(answers, release) if short else _full_lines(answers, release)
    click.echo("\n".join(lines))
    return 0


def _release(version: str | None) -> Release | None:
    """The release that is asked about; None is the installed one.

    Raises UsageError for a text that is no version or a release of which nothing is known, UnsupportedTorchError where
    no torch is installed and none is named.
    """
    first, last = f"{FIRST_RELEASE[0]}.{FIRST_RELEASE[1]}", f"{LAST_RELEASE[0]}.{LAST_RELEASE[1]}"
    if version is None:
        installed_torch()
        return None
    try:
        release = parse_torch_version(version).release
    except UnsupportedTorchError as error:
        raise UsageError(str(error)) from None
    if not FIRST_RELEASE <= release <= LAST_RELEASE:
        raise UsageError(f"nothing is known about torch {version}: --torch accepts {first} to {last}")
    return release


def _nearest(operator: str) -> str:
    names = nearest_operators(operator)
    return f"; nearest: {', '.join(names)}" if names else ""


def _torch(release: Release | None) -> str:
    return str(installed_torch().version) if release is None else _words(release)


def _words(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def _full_lines(answers: Iterable[Coverage], release: Release | None) -> list[str]:
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for answer in answers:
        groups.setdefault(tuple(_facts(answer)), []).append(answer.operator)
    lines = [f"on mps in torch {_torch(release)}{' (installed)' if release is None else ''}"]
    for facts, operators in groups.items():
        lines += ["", *_wrapped(", ".join(operators), "", "    ")]
        for name, text in facts:
            lines += _wrapped(text, f"  {name:<11} ", " " * 14)
    return lines


def _wrapped(text: str, first: str, others: str) -> list[str]:
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    return textwrap.wrap(
        text,
        min(columns, _WIDTH),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _short_lines(answers: Sequence[Coverage], release: Release | None) -> list[str]:
    width = max(len(answer.operator) for answer in answers)
    lines = [f"{len(answers)} overloads on mps in torch {_torch(release)}"]
    return lines + [
        f"{answer.operator:<{width}}  {answer.kind.value}{'' if answer.since is None else f', {_since(answer)}'}"
        for answer in answers
    ]


def _since(answer: Coverage) -> str:
    assert answer.since is not None
    earlier = " or earlier" if answer.since == FIRST_RELEASE else ""
    return f"on mps since torch {_words(answer.since)}{earlier}"


def _facts(answer: Coverage) -> list[tuple[str, str]]:
    """The facts about an overload, as pairs of name and text."""
    facts = [("status", _status(answer))]
    if answer.since is not None:
        facts.append(("since", _since(answer)))
    if answer.layouts and answer.layouts != ("strided",):
        facts.append(("layouts", ", ".join(answer.layouts)))
    facts += [
        ("refuses", f"{', '.join(dtypes)}: {said.error}: {said.text}") for said, dtypes in _by_text(answer).items()
    ]
    if answer.widened:
        facts.append(("more dtypes", f"{', '.join(answer.widened)}: computed on MPS, not on the CPU"))
    if answer.wait is not None:
        condition = f", if {answer.wait.condition}" if answer.wait.condition else ""
        facts.append(("host waits", f"{answer.wait.what}{condition} ({answer.wait.source})"))
    facts += [("limit", f"{limit.error}: {limit.text}") for limit in answer.limits]
    instead = equivalent(answer.operator) if answer.kind in (Kind.MISSING, Kind.ALWAYS_FALLBACK) else None
    if instead is not None:
        facts.append(("instead", f"write {instead.instead} for {instead.call}"))
    if not answer.details:
        facts.append(("not known", "dtypes, waits and limits: known from torch 2.11 on"))
    return facts


def _status(answer: Coverage) -> str:
    text = _KINDS[answer.kind]
    if answer.through:
        text += f" (through {answer.through})"
    if answer.related:
        text += f"; behind it {', '.join(answer.related)} {'is' if len(answer.related) == 1 else 'are'} missing"
    if answer.assumed:
        text += "; no kernel is registered in this release, the rest is as in the installed torch"
    return text


def _by_text(answer: Coverage) -> dict[BackendText, list[str]]:
    """The refused dtypes, those with one text together."""
    groups: dict[BackendText, list[str]] = {}
    for dtype, said in answer.refused:
        groups.setdefault(said, []).append(dtype)
    return groups
