"""`anymps convert`: makes a checkpoint with float64 or other devices loadable on mps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from anymps._command_settings import ConvertSettings
from anymps.checkpoints import Report
from anymps.checkpoints import convert as convert_checkpoint
from anymps.commands._help import Command
from anymps.commands._options import takes
from anymps.report import clean, plural, size


@click.command(cls=Command, short_help="Make a checkpoint loadable on mps.")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@takes("convert")
def convert(asked: ConvertSettings, source: Path, target: Path) -> int:
    """Write the checkpoint IN to OUT so that it loads on mps: float64 becomes float32, and every device cpu.

    IN is a file of torch.save or a safetensors file; it is never changed.
    Nothing in it is run: a file with classes of its own is refused.
    """
    report = convert_checkpoint(source, target, to=asked.to, force=asked.force)
    click.echo("\n".join(_lines(report)))
    return 0


def _lines(report: Report) -> Iterator[str]:
    changed = f"{len(report.changes):,} of {plural(report.tensors, 'tensor')} changed"
    old, new = size(report.old_bytes), size(report.new_bytes)
    sizes = old if old == new else f"{old} -> {new}"
    yield f"{clean(report.source)} -> {clean(report.target)} ({report.format}): {changed}, {sizes}"
    width = min(60, max((len(clean(change.name)) for change in report.changes), default=0))
    for change in report.changes:
        yield f"  {clean(change.name):<{width}}  {change.old_dtype} -> {change.new_dtype}"
    if report.devices:
        yield f"  all tensors: {', '.join(map(clean, report.devices))} -> cpu"
    for remark in report.remarks:
        yield f"  warning: {remark}"
