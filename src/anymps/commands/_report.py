"""`anymps report`: a recording shown again."""

from __future__ import annotations

__all__ = ["report"]

import sys
from pathlib import Path

import click

from anymps.commands._show import findings_status, show


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def report(file: Path) -> int:
    """Show a recording that `anymps run --record FILE` made. Needs no torch."""
    from anymps.findings import find
    from anymps.record import Recording

    with Recording.open(file) as recording:
        findings = find(recording)
        show(recording, findings, None, sys.stdout)
    return findings_status(findings, None)
