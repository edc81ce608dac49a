"""A command whose own options end where Python's would: everything after the script belongs to the script."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from anymps._command_settings import FACES, rows_of
from anymps.commands._help import Command
from anymps.commands._misplaced import check_placement
from anymps.commands._options import takes
from anymps.commands._target import Target


def script_command(
    name: str,
    short_help: str | None = None,
    *,
    module: str = "",
    words: str = "SCRIPT [ARGUMENTS]...",
) -> Callable[[Callable[..., int]], click.Command]:
    """The command `name` of a script and its arguments, which its function is given as `words`.

    `module` is the help of `-m MODULE`, empty for a command without it.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        function = click.argument("words", metavar=words, nargs=-1, type=click.UNPROCESSED)(function)
        if module:
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
        bare = {row.flag: row for row in rows_of(str(self.name)) if row.bare} if self.name in FACES else {}
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
