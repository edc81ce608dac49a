"""`anymps diff`: what changed between two recordings."""

from __future__ import annotations

__all__ = ["diff"]

import sys
from pathlib import Path

import click

from anymps.findings import FAIL_ON, parse_fail_on
from anymps.report import STDOUT, Output, Outputs

WORSE = 1
_DEFAULT = "warning"
FORMS = ("terminal", "html", "markdown", "json")


@click.command(short_help="Compare two recordings: what is new, gone, worse.")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMS), default="terminal", help="The form.")
@click.option("--output", metavar="PATH", default=STDOUT, help="Write it to this file; - (default) is standard output.")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default=_DEFAULT,
    help=f"Exit with {WORSE} if there are new findings of this severity or higher (default {_DEFAULT}).",
)
def diff(before: Path, after: Path, form: str, output: str, fail_on: str) -> int:
    """Compare two recordings: findings that are new or gone, the step side by side, operators on the CPU."""
    from anymps.findings import find
    from anymps.record import Recording
    from anymps.report import compare, diff_document, render_diff_json, rendered

    wanted = Output(form, output)
    Outputs((wanted,)).check()
    with Recording.open(before) as first, Recording.open(after) as second:
        result = compare(first, second, find(first), find(second))
    target = sys.stdout if wanted.to_stdout else None
    pieces = [render_diff_json(result)] if form == "json" else rendered(diff_document(result), form, target)
    wanted.write(pieces, sys.stdout)
    least = parse_fail_on(fail_on)
    # The most severe has the smallest number.
    return WORSE if least is not None and any(finding.severity <= least for finding in result.new) else 0
