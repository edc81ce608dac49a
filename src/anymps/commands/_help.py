"""The parts of a command's `--help`: examples, options by what they are for, and exit codes."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import click

_FEW: Final = 8  # options, which need no groups


@cache
def help_table() -> dict[str, Any]:
    """What is shown of each command beside its options: examples, groups of options, exit codes."""
    from anymps._tables import read_table  # only help reads it, and a command starts quickly

    return read_table(__file__, "help.toml")


class Command(click.Command):
    """A command whose help has examples, groups where there are many options, and exit codes."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options and the exit codes."""
        write_examples(ctx, formatter)
        for name, records in {**self.grouped(ctx), "Exit codes": exit_codes(ctx)}.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def grouped(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the options, each with its help, by group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in help_table()["groups"]}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                names = (name for name, settings in help_table()["groups"].items() if option.name in settings)
                groups[next(names, "Options")].append(record)
        found = [record for records in groups.values() for record in records]
        if len(found) <= _FEW:
            groups = {"Options": found}
        return {name: records for name, records in groups.items() if records}


class Group(click.Group):
    """A command of commands, with examples in its help."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options, the commands and the exit codes."""
        write_examples(ctx, formatter)
        super().format_options(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl(exit_codes(ctx))


def examples(ctx: click.Context) -> list[str]:
    """Return the examples of a command, each with what it is for."""
    rows = help_table()["examples"][ctx.command_path.partition(" ")[2]]
    width = max(len(line) for line, _ in rows)
    return [f"{line:<{width}}  # {purpose}" if purpose else line for line, purpose in rows]


def write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command."""
    with formatter.section("Examples"):
        for line in examples(ctx):
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def exit_codes(ctx: click.Context) -> list[tuple[str, str]]:
    """Return the codes of a command with their meanings; of `anymps` itself, all."""
    own = ctx.command_path.split(" ")[1:2]
    found: dict[str, list[str]] = {}
    for code, commands, meaning in help_table()["exit_codes"]:
        if not own or not commands or own[0] in commands.split(" "):
            found.setdefault(code, []).append(
                meaning if own or not commands else f"{', '.join(commands.split(' '))}: {meaning}"
            )
    return [(code, "; ".join(meanings)) for code, meanings in found.items()]
