"""A whole conversion: of a file, a directory or an index of shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from anymps._errors import CheckpointError
from anymps.checkpoints._file import Format, check_name, convert_file, format_of
from anymps.checkpoints._folder import INDEX, convert_folder
from anymps.checkpoints._place import Nowhere, check_places, replaced_file, replaced_folder, writing
from anymps.checkpoints._report import Report


def convert(
    source: Path, target: Path | None, *, to: Format | None = None, force: bool = False, dry_run: bool = False
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
        raise CheckpointError("a conversion needs a place to write to")
    if is_folder:
        return _convert_folder(source, target, to, dry_run)
    kind = to or format_of(source)
    if target is not None:
        check_name(target, kind)
    if target is None or dry_run:
        return Report([convert_file(source, cast(BinaryIO, Nowhere()), to, None)])
    with replaced_file(target) as out:
        return Report([convert_file(source, out, to, target)])


def _convert_folder(source: Path, target: Path | None, to: Format | None, dry_run: bool) -> Report:
    if target is None or dry_run:

        @contextmanager
        def counted(inside: Path) -> Iterator[BinaryIO]:
            yield cast(BinaryIO, Nowhere())

        return convert_folder(source, to, None, counted)
    with replaced_folder(target) as folder:

        @contextmanager
        def opened(inside: Path) -> Iterator[BinaryIO]:
            path = folder / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            with writing(path, target / inside) as out:
                yield out

        return convert_folder(source, to, target, opened)
