"""A command whose own options end where Python's would: everything after the script belongs to the script."""

from __future__ import annotations

from collections.abc import Sequence

import click

from anymps._command_settings import FACES, rows_of


class ScriptCommand(click.Command):
    """Ends our own options where python would: at the script, or after `-m module`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._mark_end(args))

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
            if word in bare and (not rest or rest[0] not in bare[word].words):
                result.append(f"{word}={bare[word].bare}")
            elif word in with_value:
                result += [word, *rest[:1]]
                rest = rest[1:]
            elif word.startswith("-") and word != "-":
                result.append(word)
            else:
                return [*result, "--", word, *rest]
        return result
