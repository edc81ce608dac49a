"""`anymps convert`: makes a checkpoint with float64 or other devices loadable on mps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from anymps._command_settings import ConvertSettings
from anymps._errors import UsageError
from anymps.checkpoints import Change, FileReport, Report
from anymps.checkpoints import convert as convert_checkpoint
from anymps.commands._options import takes
from anymps.report import clean, plural, size


@click.command(short_help="Make a checkpoint loadable on mps.")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", required=False, type=click.Path(path_type=Path))
@takes("convert")
def convert(asked: ConvertSettings, source: Path, target: Path | None) -> int:
    """Write the checkpoint IN to OUT so that it loads on mps: float64 becomes float32, and every device cpu.

    IN is a file of torch.save or a safetensors file, an index of shards, or a directory of them; it is never changed.
    Nothing in it is run: a file with classes of its own is refused.
    """
    if target is None and not asked.dry_run:
        raise UsageError("name the file to write, or add --dry-run (anymps convert --help)")
    report = convert_checkpoint(source, target, to=asked.to, force=asked.force, dry_run=asked.dry_run)
    write = _as_json if asked.json else _as_text
    click.echo(write(report, asked.dry_run))
    return 0


def _totals(report: Report) -> dict[str, int]:
    return {
        "files": len(report.files),
        "tensors": sum(file.tensors for file in report.files),
        "changed": sum(len(file.changes) for file in report.files),
        "old_bytes": sum(file.old_bytes for file in report.files),
        "new_bytes": sum(file.new_bytes for file in report.files),
    }


def _as_json(report: Report, dry_run: bool) -> str:
    document = asdict(report)
    for file in document["files"]:
        del file["names"], file["dropped"]  # of use for an index alone
    return json.dumps({"dry_run": dry_run, **document, "totals": _totals(report)}, indent=2)


def _as_text(report: Report, dry_run: bool) -> str:
    return "\n".join(_lines(report, dry_run))


def _lines(report: Report, dry_run: bool) -> Iterator[str]:
    for file in report.files:
        yield from _file_lines(file)
    for remark in report.remarks:
        yield f"warning: {clean(remark)}"
    if report.copied:
        yield f"copied unchanged: {', '.join(map(clean, report.copied))}"
    totals = _totals(report)
    if totals["files"] > 1:
        yield f"{plural(totals['files'], 'file')}: {_sum(totals['changed'], totals['tensors'])}, {_sizes(**totals)}"
    if dry_run:
        yield "dry run: nothing was written"


def _file_lines(file: FileReport) -> Iterator[str]:
    to = f" -> {clean(file.target)}" if file.target else ""
    changed = _sum(len(file.changes), file.tensors)
    yield f"{clean(file.source)}{to} ({file.format}): {changed}, {_sizes(file.old_bytes, file.new_bytes)}"
    width = min(60, max((len(clean(change.name)) for change in file.changes), default=0))
    for change in file.changes:
        yield f"  {clean(change.name):<{width}}  {_change(change)}"
    for names in file.ties:
        yield f"  one storage: {', '.join(map(clean, names))}"
    for remark in file.remarks:
        yield f"  warning: {remark}"


def _sum(changed: int, tensors: int) -> str:
    return f"{changed:,} of {plural(tensors, 'tensor')} changed"


def _sizes(old_bytes: int, new_bytes: int, **_: int) -> str:
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
