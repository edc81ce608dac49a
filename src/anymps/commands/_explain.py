"""`anymps explain`: the documentation of a rule, or the list of all rules."""

from __future__ import annotations

import sys

import click

from anymps._errors import UsageError
from anymps.commands._help import Command
from anymps.findings import RULES, nearest_rule
from anymps.report import rule_page


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
    page = rule_page(RULES[wanted])
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(page))
    else:
        click.echo(page, nl=False)
    return 0
