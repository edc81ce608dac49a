"""`anymps diff`: what changed between two recordings."""

from __future__ import annotations

__all__ = ["diff"]

import os
import shutil
import sys
from pathlib import Path

import click

from anymps.commands._outputs import STDOUT, Output, Outputs, write_file, write_stream
from anymps.findings import FAIL_ON, parse_fail_on

WORSE = 1
_DEFAULT = "warning"


@click.command(short_help="Compare two recordings: what is new, gone, worse.")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["terminal", "html", "json"]), default="terminal", help="The form.")
@click.option("--output", metavar="PATH", default=STDOUT, help="Write it to this file; - (default) is standard output.")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default=_DEFAULT,
    help=f"Exit with {WORSE} if there are new findings of this severity or above (default {_DEFAULT}).",
)
def diff(before: Path, after: Path, form: str, output: str, fail_on: str) -> int:
    """Compare two recordings: findings that are new or gone, the step side by side, operators on the CPU."""
    from anymps.findings import find
    from anymps.record import Recording
    from anymps.report import compare, render_diff_html, render_diff_json, render_diff_terminal

    target = Outputs((Output(form, output),))
    target.check()
    with Recording.open(before) as first, Recording.open(after) as second:
        result = compare(first, second, find(first), find(second))
    if form == "json":
        text = render_diff_json(result)
    elif form == "html":
        text = render_diff_html(result)
    else:
        terminal = output == STDOUT and sys.stdout.isatty()
        color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns if terminal else None
        text = render_diff_terminal(result, width=width, color=color)
    if output == STDOUT:
        write_stream([text], sys.stdout)
    else:
        write_file([text], Path(output))
    least = parse_fail_on(fail_on)
    # The most severe has the smallest number.
    return WORSE if least is not None and any(finding.severity <= least for finding in result.new) else 0
