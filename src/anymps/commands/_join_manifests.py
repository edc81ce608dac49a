"""`anymps join-manifests`: what the shards of a suite wrote with `--mps-update-manifest`, in one manifest."""

from __future__ import annotations

from pathlib import Path

import click

from anymps._atomic import check_writable
from anymps._command_settings import JoinManifestsSettings
from anymps._errors import UsageError
from anymps._manifest import Manifest, merged, read_manifest, write_manifest
from anymps.commands._help import Command
from anymps.commands._options import takes
from anymps.commands._show import say
from anymps.report import plural


@click.command("join-manifests", cls=Command, short_help="Merge the manifests of a suite's shards.")
@click.argument("files", nargs=-1, required=True, metavar="SHARD...", type=click.Path(path_type=Path))
@takes("join-manifests")
def join_manifests(asked: JoinManifestsSettings, files: tuple[Path, ...]) -> int:
    """Update a manifest from the shards of a suite, each of which ran part of the tests.

    Each SHARD is a copy of the manifest that `pytest --mps --mps-update-manifest` has changed. FILE gets what each of
    them added, changed or removed; the rest of FILE stays. Needs no torch.
    """
    into = asked.into
    if any(file.resolve() == into.resolve() for file in files):
        raise UsageError(f"--into {into} is one of the shards: name the manifest as it was before they ran")
    base = _read(into) if into.exists() else Manifest(into, {})
    changes = merged(base.entries, [_read(file) for file in files])
    added = len(changes.endings.keys() - base.entries.keys())
    changed = len(changes.endings) - added
    if changes.endings or changes.gone or not into.exists():
        try:
            check_writable(into)
            write_manifest(into, changes)
        except OSError as error:
            raise UsageError(f"{into} cannot be written: {error.strerror}") from None
    numbers = f"{added} added, {changed} changed, {len(changes.gone)} removed"
    say(f"manifest {into}: {numbers}, by {plural(len(files), 'shard')}")
    return 0


def _read(path: Path) -> Manifest:
    try:
        return read_manifest(path)
    except OSError as error:
        raise UsageError(f"manifest {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"manifest {path} cannot be read: it is not a text file in UTF-8") from None
