"""`anymps diff`: what changed between two recordings."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from anymps._command_settings import DiffSettings
from anymps.commands._help import Command
from anymps.commands._options import takes
from anymps.findings import parse_fail_on
from anymps.report import Output, Outputs

WORSE = 1


@click.command(cls=Command, short_help="Compare two recordings: what is new, gone, worse.")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@takes("diff")
def diff(asked: DiffSettings, before: Path, after: Path) -> int:
    """Compare two recordings: findings that are new or gone, the step side by side, operators on the CPU."""
    from anymps.findings import Story, find
    from anymps.record import Recording
    from anymps.report import compare, diff_document, rendered

    wanted = Output(asked.form, asked.output)
    Outputs((wanted,)).check()
    with Recording.open(before) as first, Recording.open(after) as second:
        result = compare(Story.of(first), Story.of(second), find(first), find(second))
    target = sys.stdout if wanted.to_stdout else None
    wanted.write(rendered(diff_document(result), asked.form, target), sys.stdout)
    least = parse_fail_on(asked.worse)
    # The most severe has the smallest number.
    return WORSE if least is not None and any(finding.severity <= least for finding in result.new) else 0
