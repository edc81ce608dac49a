"""`anymps report`: a recording shown again."""

from __future__ import annotations

__all__ = ["report"]

import sys
from pathlib import Path

import click

from anymps.commands._outputs import STDOUT, Output, Outputs, root_option
from anymps.commands._show import findings_status, show
from anymps.report import FORMATS


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], help="The form of the report.")
@click.option("--output", metavar="PATH", default=STDOUT, help="Write it to this file; - (default) is standard output.")
@root_option
def report(file: Path, form: str, output: str, root: str | None) -> int:
    """Show a recording that `anymps run --record FILE` made. Needs no torch."""
    from anymps.findings import find
    from anymps.record import Recording

    outputs = Outputs((Output(form, output),), root)
    outputs.check(file)
    with Recording.open(file) as recording:
        findings = find(recording)
        if form == FORMATS[0] and output == STDOUT:
            show(recording, findings, None, sys.stdout)  # as wide as the terminal, and in colour there
        else:
            outputs.write(recording, findings, sys.stdout)
    return findings_status(findings, None)
