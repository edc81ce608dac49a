"""The command `anymps doctor`: prints the facts and the diagnosis."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click

from anymps.commands._help import Command
from anymps.commands.doctor._diagnosis import Diagnosis, State, diagnose
from anymps.commands.doctor._facts import Facts, gather

_STATES = {
    State.NO_TORCH: "torch cannot be used",
    State.NOT_BUILT: "not built: this torch has no mps device of its own",
    State.NOT_AVAILABLE: "built, but not available: this torch has the mps device, but it cannot work on this machine",
    State.AVAILABLE: "available",
}
_DEVICES = {
    "real": "real: this Mac's own GPU",
    "virtual": "virtual: anymps acts as a Mac on this machine's CPU",
    "none": "none, until the problems marked BAD below are fixed",
}

_INDENT = 17  # where the second column begins


@click.command(cls=Command, short_help="Explain why mps is or is not available, and what to do next.")
def doctor() -> int:
    """Explain why mps is or is not available on this machine, and what to do next.

    Changes nothing and builds nothing. Exits with 0 if anymps can provide a device here, real or virtual, and with 1
    if not.
    """
    facts = gather()
    diagnosis = diagnose(facts)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    click.echo("\n".join(wrapped(lines(facts, diagnosis), width)))
    return 1 if diagnosis.device == "none" else 0


def lines(facts: Facts, diagnosis: Diagnosis) -> list[str]:
    """Return the text of the answer, line by line."""
    result = [f"mps in torch     {_STATES[diagnosis.state]}"]
    result += [f"  because        {text}" for text in diagnosis.why]
    result += [f"mps with anymps  {_DEVICES[diagnosis.device]}"]
    if facts.virtual:
        result.append("                 it is switched on in this process already")
    result += [f"next             {text}" for text in diagnosis.next_steps]
    result += ["", f"machine          {_machine(facts)}", f"anymps           {facts.anymps}, Python {facts.python}"]
    for check in diagnosis.checks:
        mark = "" if check.status.value == "ok" else f"{check.status.name}: "
        result.append(f"{check.name:<16} {mark}{check.text}")
    if not diagnosis.notes:
        return [*result, "environment      nothing set that changes mps"]
    result.append("environment")
    for note in diagnosis.notes:
        result.append(f"  {note.name}={note.value}")
        if note.text:
            result.append(f"                 {'WARN: ' if note.wrong else ''}{note.text}")
    return result


def wrapped(answer: list[str], width: int) -> list[str]:
    """Break lines longer than a terminal's `width`, and go on in their second column. With 0, a file, break none."""
    if width <= _INDENT:
        return answer
    below = " " * _INDENT
    folded = []
    for line in answer:
        parts = textwrap.wrap(line, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)
        folded += parts or [line]
    return folded


def _machine(facts: Facts) -> str:
    """Describe the machine in a few words."""
    parts = [f"macOS {facts.macos}" if facts.macos else facts.system, facts.machine]
    if facts.translated:
        parts.append("under Rosetta")
    if facts.virtual_machine:
        parts.append("in a virtual machine")
    return ", ".join(parts)
