"""Writes a conversion under another name beside the target, and renames it when it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from anymps._atomic import check_not_read_only, replacing, staged_folder, unused_name
from anymps._errors import CheckpointError


class Nowhere:
    """A file for a dry run: what is written is counted and forgotten."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Sized) -> int:
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        pass


def check_places(source: Path, target: Path, force: bool, is_folder: bool) -> None:
    """Raise CheckpointError unless `target` may be written: apart from the source, and not there without `force`.

    `is_folder`: a directory is converted to a directory; of an index file it is the one that the index is in.
    """
    top = source if source.is_dir() or not is_folder else source.parent
    real_top, real_target = Path(os.path.realpath(top)), Path(os.path.realpath(target))
    if real_top == real_target or (os.path.exists(target) and os.path.samefile(top, target)):
        raise CheckpointError(f"{target} is {top} itself: name another place, the source is never changed")
    if is_folder and (real_top in real_target.parents or real_target in real_top.parents):
        raise CheckpointError(f"{target} and {top} lie one inside the other: name a place outside")
    if not os.path.isdir(target.parent):
        raise CheckpointError(f"{target} cannot be written: there is no directory {target.parent}")
    if not os.path.lexists(target):
        return
    if not force:
        raise CheckpointError(f"{target} already exists: --force replaces it")
    with writing(target):
        check_not_read_only(target)
    if is_folder and (target.is_symlink() or not target.is_dir()):
        raise CheckpointError(f"{target} is not a directory, and {source} becomes one: name another place")
    if not is_folder and not (target.is_symlink() or target.is_file()):
        raise CheckpointError(f"{target} is not a file, and {source} becomes one: name another place")


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """What the system refuses in the block is a CheckpointError about `target`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{target} cannot be written: {error.strerror or error}") from None


@contextmanager
def replaced_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write; at the end of the block it is `target`, and after an error `target` is what it was.

    Raises CheckpointError if it cannot be written.
    """
    # A link may lead into a cache that other programs share: it is replaced itself.
    with writing(target), replacing(target, follow=False) as file:
        yield file


@contextmanager
def new_file(path: Path, told: Path) -> Iterator[BinaryIO]:
    """A new file at `path`, safe on the disk at the end of the block; an error names `told`. Raises CheckpointError."""
    with writing(told):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """A directory to fill; at the end of the block it is `target`, and after an error `target` is what it was.

    Directories cannot be exchanged in one step: a kill between the two leaves the old one beside `target`.
    Raises CheckpointError if it cannot be written, or if `target` holds what the new one does not: nothing is lost.
    """
    old = unused_name(target, "old")
    with writing(target), staged_folder(target) as fresh:
        yield fresh
        if target.exists():
            lost = sorted(_names(target) - _names(fresh))
            if lost:
                raise CheckpointError(f"{target} holds {lost[0]}, which would be lost: name another directory")
            target.rename(old)
        try:
            fresh.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise
        if old.exists():
            old.rename(fresh)  # which goes


def _names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
