"""`anymps explain`: the documentation of a rule, or the list of all rules."""

from __future__ import annotations

import sys
from typing import Final

import click

from anymps._errors import UsageError
from anymps.commands._help import Command
from anymps.findings import RULES, nearest_rule
from anymps.report import rule_page

_WIDTH: Final = 100  # of a page in a file or a pipe


@click.command(cls=Command, short_help="Explain a rule: why it matters on MPS, the fix, an example.")
@click.argument("rule", required=False)
def explain(rule: str | None) -> int:
    """Explain a rule (MPS201): why it matters on MPS, the fix, an example, the source. Without one: list all rules."""
    if rule is None:
        for known in RULES.values():
            click.echo(f"{known.id}  {known.severity.word:<7}  {known.title}")
        return 0
    wanted = rule.upper()
    if wanted not in RULES:
        nearest = nearest_rule(rule)
        hint = f"; the nearest is {nearest}" if nearest else ""
        raise UsageError(f"there is no rule {rule}{hint} (anymps explain lists them)")
    _show(rule_page(RULES[wanted]))
    return 0


def _show(page: str) -> None:
    """Print a page of Markdown as a terminal shows it; in a file or a pipe the same without colours and links."""
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.text import Text

    terminal = sys.stdout.isatty()
    title, _, body = page.partition("\n\n")
    console = Console(width=None if terminal else _WIDTH)
    with console.capture() as shown:
        console.print(Text(title.removeprefix("# "), style="bold"), Markdown(body, hyperlinks=terminal), sep="\n\n")
    for line in shown.get().splitlines():
        click.echo(line.rstrip())
