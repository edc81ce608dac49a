"""The pages of docs/commands, one a command, made from its own help; `python -m tests.pages` writes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

from anymps.commands import _commands
from anymps.commands._help import Command, examples, exit_codes

_WIDTH = 150  # of a line of prose, as in other pages


def pages() -> dict[str, str]:
    """The text of every page by its file's name."""
    top = click.Context(_commands, info_name="anymps")
    commands = {name: _commands.get_command(top, name) for name in _commands.list_commands(top)}
    return {f"{name}.md": "\n".join(_page(command, name, top, "#")) for name, command in commands.items() if command}


def _page(command: click.Command, name: str, above: click.Context, level: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=above)
    yield f"{level} anymps {context.command_path.partition(' ')[2]}\n"
    for part in (command.help or "").split("\n\n"):
        prose = markdown(" ".join(part.split()))
        yield textwrap.fill(prose, _WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield "```console\n{}\n```\n".format("\n".join(examples(context)))
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from _page(inner, part, context, f"{level}#")
    if isinstance(command, Command):
        for title, records in command.grouped(context).items():
            rows = [_option(record) for record in records if not record[0].endswith("--help")]
            yield from (f"{level}# {title}\n", "| option | |", "| --- | --- |", *rows, "") if rows else ()
    if level == "#":
        yield "## Exit codes\n"
        codes = (f"| {code} | {markdown(meaning)} |" for code, meaning in exit_codes(context))
        yield from ("| code | |", "| --- | --- |", *codes, "")


def _option(record: tuple[str, str]) -> str:
    names, _, rest = record[1].partition("  [")
    default = re.match(r"default: ([^;\]]+)", rest)
    more = f" Default: {default[1]}." if default else " Required." if "required" in rest else ""
    return f"| `{record[0].replace('|', chr(92) + '|')}` | {markdown(names)}{more} |"


def markdown(text: str) -> str:
    """Options as code, and signs that Markdown reads as its own escaped, outside of code."""
    parts = text.split("`")
    parts[::2] = [
        re.sub(r"(?<![\w-])--[a-z][\w-]*", r"`\g<0>`", re.sub(r"[*<>|{]", r"\\\g<0>", part)) for part in parts[::2]
    ]
    return "`".join(parts)
