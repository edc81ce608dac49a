"""A command whose own options end where Python's would: everything after the script belongs to the script."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

import click

from anymps._command_settings import rows_of
from anymps._errors import UsageError
from anymps._text import tell
from anymps.commands._help import Command
from anymps.commands._options import takes
from anymps.commands._target import Target, TargetError

_MOST_FILES: Final = 200  # that are looked at for the script's own options


def script_command(
    name: str,
    short_help: str | None = None,
    *,
    module: str,
    words: str = "SCRIPT [ARGUMENTS]...",
) -> Callable[[Callable[..., int]], click.Command]:
    """The command `name` of a script and its arguments, which its function is given as `words`.

    `module` is the help of `-m MODULE`.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        function = click.argument("words", metavar=words, nargs=-1, type=click.UNPROCESSED)(function)
        function = click.option("-m", "module", metavar="MODULE", help=module)(function)
        # Else click would read the script's own options as ours, up to the end of the line.
        made = click.command(
            cls=ScriptCommand, short_help=short_help, context_settings={"allow_interspersed_args": False}
        )
        return made(takes(name)(function))

    return decorate


class ScriptCommand(Command):
    """Ends our own options where python would: at the script, or after `-m module`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        marked = self._mark_end(args)
        own_end = marked.count("--") == args.count("--")  # the user's own, after which all is the script's
        rest = super().parse_args(ctx, marked)
        if not own_end:
            self._check_placement(ctx)
        return rest

    def _check_placement(self, ctx: click.Context) -> None:
        options = [option for option in self.params if isinstance(option, click.Option)]
        module, words = ctx.params.get("module"), ctx.params.get("words", ())
        if module or words:
            own = {name for option in options for name in (*option.opts, *option.secondary_opts)} - {"-m"}
            check_placement(str(self.name), own, Target.named(module, words, str(self.name)))

    def _mark_end(self, args: Sequence[str]) -> list[str]:
        """Put `--` before what is not ours."""
        with_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        bare = {row.flag: row for row in rows_of(str(self.name)) if row.bare}
        result: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word.startswith("-m") and not word.startswith("--"):
                if word == "-m":
                    if not rest:
                        return [*result, word]
                    word += rest.pop(0)
                return [*result, word, "--", *rest]
            if word == "--":
                return [*result, word, *rest]
            if word in bare and (not rest or not bare[word].takes(rest[0])):
                result.append(f"{word}={bare[word].bare}")
            elif word in with_value:
                result += [word, *rest[:1]]
                rest = rest[1:]
            elif word.startswith("-") and word != "-":
                result.append(word)
            else:
                return [*result, "--", word, *rest]
        return result


def check_placement(command: str, own: Collection[str], target: Target) -> None:
    """Raise UsageError for an option of ours after a script that has no such option; warn where it seems to have one.

    A script seems to have one if its text, or a Python file beside or below it, names it as parsers do: `"--steps"`,
    the field `steps: int` of a class, or the parameter `steps=`.
    """
    given = dict.fromkeys(word.partition("=")[0] for word in target.arguments)
    ours = [word for word in given if word in own]
    text = _text(target) if ours else ""
    for option in ours:
        if not text:
            return
        if not _names(text, option):
            raise UsageError(
                f"{option} comes after {target.name}, which has no such option: put {option} before {target.name}, or "
                f"write anymps {command} -- {target.name} if the script does have it"
            )
        tell(
            f"anymps: {option} comes after {target.name}, so the script gets it. To pass it to anymps, put it before "
            f"{target.name}; to hide this message, write anymps {command} -- {target.name}"
        )


def _names(text: str, option: str) -> bool:
    name = re.escape(option.lstrip("-")).replace(r"\-", "[-_]")
    return re.search(rf"""["']-{{0,2}}{name}["'=/]|(?<![\w.]){name}\s*[:=]""", text) is not None


def _text(target: Target) -> str:
    """All that may hold the script's parser; nothing where the script can't be read."""
    try:
        file = target.file.resolve()
        texts = [file.read_text(encoding="utf-8", errors="replace")]
    except (OSError, TargetError):
        return ""
    for path, _ in zip(file.parent.rglob("*.py"), range(_MOST_FILES), strict=False):
        with suppress(OSError):
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)
