"""A whole conversion: of a file, a directory or an index of shards."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from anymps._errors import CheckpointError
from anymps.checkpoints._file import To, check_name, convert_file
from anymps.checkpoints._folder import INDEX, convert_folder
from anymps.checkpoints._place import Nowhere, check_places, replaced_file, replaced_folder
from anymps.checkpoints._read import read
from anymps.checkpoints._report import Report


def convert(
    source: Path, target: Path | None, *, to: To | None = None, force: bool = False, dry_run: bool = False
) -> Report:
    """Write the checkpoint `source` to `target` so that it loads on mps: no float64, no other devices.

    A directory, or an index of shards, becomes a directory. `to` changes the format of torch files. A dry run reads and
    converts everything and writes nothing; only it may do without a target. The source is not changed, and a target
    that is there is replaced, with `force`, only when all is whole.

    Raises CheckpointError for everything that is wrong with either.
    """
    if not os.path.exists(source):
        raise CheckpointError(f"there is no checkpoint {source}")
    is_folder = source.is_dir() or source.name.endswith(INDEX)
    if target is not None:
        check_places(source, target, force, is_folder)
    elif not dry_run:
        raise CheckpointError("a conversion needs a file to write")
    written = None if dry_run else target
    if is_folder:
        with nullcontext() if written is None else replaced_folder(written) as folder:
            return convert_folder(source, to, folder, written)
    file = read(source)
    if target is not None:
        check_name(target, to or file.format)
    with nullcontext(cast(BinaryIO, Nowhere())) if written is None else replaced_file(written) as out:
        return Report([convert_file(file, out, to, written)])
