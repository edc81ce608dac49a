"""`anymps convert`: makes a checkpoint with float64 or other devices loadable on mps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from anymps._command_settings import ConvertSettings
from anymps._errors import UsageError
from anymps.checkpoints import Change, Report
from anymps.checkpoints import convert as convert_checkpoint
from anymps.commands._help import Command
from anymps.commands._options import takes
from anymps.report import clean, plural, size


@click.command(cls=Command, short_help="Make a checkpoint loadable on mps.")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", required=False, type=click.Path(path_type=Path))
@takes("convert")
def convert(asked: ConvertSettings, source: Path, target: Path | None) -> int:
    """Write the checkpoint IN to OUT so that it loads on mps: float64 becomes float32, and every device cpu.

    IN is a file of torch.save or a safetensors file; it is never changed.
    Nothing in it is run: a file with classes of its own is refused.
    """
    if target is None and not asked.dry_run:
        raise UsageError("name the file to write, or add --dry-run (anymps convert --help)")
    report = convert_checkpoint(source, target, to=asked.to, force=asked.force, dry_run=asked.dry_run)
    if asked.json:
        click.echo(json.dumps({"dry_run": asked.dry_run, **asdict(report)}, indent=2))
    else:
        click.echo("\n".join(_lines(report, asked.dry_run)))
    return 0


def _lines(report: Report, dry_run: bool) -> Iterator[str]:
    to = f" -> {clean(report.target)}" if report.target else ""
    changed = f"{len(report.changes):,} of {plural(report.tensors, 'tensor')} changed"
    yield f"{clean(report.source)}{to} ({report.format}): {changed}, {_sizes(report.old_bytes, report.new_bytes)}"
    width = min(60, max((len(clean(change.name)) for change in report.changes), default=0))
    for change in report.changes:
        yield f"  {clean(change.name):<{width}}  {_change(change)}"
    for names in report.ties:
        yield f"  one storage: {', '.join(map(clean, names))}"
    for remark in report.remarks:
        yield f"  warning: {remark}"
    if dry_run:
        yield "dry run: nothing was written"


def _sizes(old_bytes: int, new_bytes: int) -> str:
    old, new = size(old_bytes) or "0 B", size(new_bytes) or "0 B"
    return old if old == new else f"{old} -> {new}"


def _change(change: Change) -> str:
    parts = []
    if change.old_dtype != change.new_dtype:
        parts.append(f"{change.old_dtype} -> {change.new_dtype}")
    if change.old_device != change.new_device:
        parts.append(f"{clean(change.old_device)} -> {change.new_device}")
    if change.saved:
        parts.append(f"saves {size(change.saved)}")
    return ", ".join(parts)
