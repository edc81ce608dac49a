"""What `--help` shows: examples that are valid, and the options of a long list by what they are for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from anymps.commands import _commands, main
from anymps.commands._help import help_table


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """All commands by the words that name them, groups included."""
    yield " ".join(path), group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(_commands))
EXAMPLES = help_table()["examples"]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines that a command's help has, from its examples on."""
    assert main([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return lines[lines.index("Examples:") :]


def test_bare_anymps_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    """It asks for nothing, so the exit code is that of wrong usage; the help is on standard output."""
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(
        "Usage: anymps [OPTIONS] [COMMAND] [ARGS]...\n\n"
        "  PyTorch's mps device (the Apple GPU) on any machine.\n\n"
        "Examples:\n"
        '  anymps run --mac "M1 8GB" train.py  # what would this Mac do?\n'
        "  anymps fix train.py                 # print a patch for what it finds\n"
        "  anymps plan train.py                # which Macs does it fit on, and how fast?\n\n"
        "Options:\n"
    )


def test_each_command_has_examples() -> None:
    """And nothing else has any."""
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_valid(name: str) -> None:
    """Each parses as a call of its command."""
    for line, _ in EXAMPLES[name]:
        words = shlex.split(line)[1:]
        path = name.split() or words[:1]
        assert COMMANDS[" ".join(path)].make_context(words[0], words[len(path) :]) is not None


def test_a_long_list_of_options_has_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """Each option stands once, below what it is for."""
    lines = shown(capsys, "run")
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "Examples:", "Options:", "Mac:", "Report:", "CI:", "Checks:", "Advanced:", "Exit codes:"
    ]  # fmt: skip
    options = [line.split()[0] for line in lines if line.startswith("  -")]
    assert len(options) == len(set(options)) == len(COMMANDS["run"].params)  # an argument less, --help more
    assert "RANGE" not in "".join(lines)


def test_a_short_list_of_options_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Doctor's three need no headings."""
    lines = shown(capsys, "doctor")
    assert [line for line in lines if line and not line.startswith(" ")] == ["Examples:", "Options:", "Exit codes:"]


def test_groups_name_options_that_exist() -> None:
    """An option that is gone leaves its group."""
    names = {option.name for command in COMMANDS.values() for option in command.params}
    assert {name for group in help_table()["groups"].values() for name in group} <= names
