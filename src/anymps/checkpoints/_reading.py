"""Reading files that may be damaged or hostile: a piece at a time, and whatever fails is one line about the file."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from anymps._errors import CheckpointError

PIECE: Final = 1 << 22
"""Bytes that are read and converted at once; a multiple of every element's size."""

_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, struct.error)
"""What the standard library raises for archives and streams that are not whole."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, count: int, /) -> bytes: ...


def printable(text: str) -> str:
    """A name from a file on one line, without control characters and not longer than a line."""
    line = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "replace").decode() for letter in text
    )
    return line if len(line) <= 200 else f"{line[:199]}…"


def damaged(path: Path, why: object) -> CheckpointError:
    """The error for a file that cannot be read through."""
    return CheckpointError(f"{path} is damaged or cut short: {printable(str(why))}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What fails in the block is a CheckpointError about `path`: the system's refusals, and damage."""
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except _DAMAGE as error:
        raise damaged(path, error) from None


def pieces_of(stream: Readable, size: int, path: Path, what: str) -> Iterator[bytes]:
    """The next `size` bytes of a stream, in order. Raises CheckpointError, naming `what`, if they are not all there."""
    while size:
        with reading(path):
            piece = stream.read(min(size, PIECE))
        if len(piece) < min(size, PIECE):
            raise damaged(path, f"{what} ends early")
        size -= len(piece)
        yield piece
