"""A whole conversion: read, made narrower, and written beside the source."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from anymps._errors import CheckpointError
from anymps.checkpoints._file import To, check_name, convert_file
from anymps.checkpoints._place import Nowhere, check_places, replaced_file
from anymps.checkpoints._read import read
from anymps.checkpoints._report import Report


def convert(
    source: Path, target: Path | None, *, to: To | None = None, force: bool = False, dry_run: bool = False
) -> Report:
    """Write the checkpoint file `source` to `target` so that it loads on mps: no float64, no other devices.

    `to` changes the format of a torch file. A dry run reads and converts everything and writes nothing; only it may do
    without a target. The source is not changed, and a target that is there is replaced, with `force`, only when all is
    whole.

    Raises CheckpointError for everything that is wrong with either.
    """
    if not os.path.exists(source):
        raise CheckpointError(f"there is no checkpoint {source}")
    if source.is_dir():
        raise CheckpointError(f"{source} is a directory: convert its files one by one")
    if target is not None:
        check_places(source, target, force)
    elif not dry_run:
        raise CheckpointError("a conversion needs a file to write")
    written = None if dry_run else target
    file = read(source)
    if target is not None:
        check_name(target, to or file.format)
    with nullcontext(cast(BinaryIO, Nowhere())) if written is None else replaced_file(written) as out:
        return convert_file(file, out, to, written)
