"""Writes a conversion under another name beside the target, and renames it when it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from anymps._atomic import check_not_read_only, replacing
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


def check_places(source: Path, target: Path, force: bool) -> None:
    """Raise CheckpointError unless `target` may be written: apart from the source, and not there without `force`."""
    if os.path.realpath(source) == os.path.realpath(target) or (
        os.path.exists(target) and os.path.samefile(source, target)
    ):
        raise CheckpointError(f"{target} is {source} itself: name another place, the source is never changed")
    if not os.path.isdir(target.parent):
        raise CheckpointError(f"{target} cannot be written: there is no directory {target.parent}")
    if not os.path.lexists(target):
        return
    if not force:
        raise CheckpointError(f"{target} already exists: --force replaces it")
    with writing(target):
        check_not_read_only(target)
    if not (target.is_symlink() or target.is_file()):
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
