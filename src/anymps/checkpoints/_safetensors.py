"""The safetensors format: a length, a JSON header, and the tensors' bytes.

The library of that name writes a file from tensors that are all in memory, and to read needs them mapped; here a tensor
is never held as a whole. The format is a page long (github.com/huggingface/safetensors, README.md, "Format"), so it is
read and written here, and the tests compare with the library.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from anymps._errors import CheckpointError
from anymps.checkpoints._dtypes import BY_CODE, Dtype
from anymps.checkpoints._values import PIECE
from anymps.checkpoints._words import printable

_MOST: Final = 100_000_000  # bytes of header that the library takes (safetensors 0.8, safetensors/src/tensor.rs)


@dataclass(frozen=True)
class Entry:
    """A tensor in a file: `start` counts from the file's first byte."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    start: int
    size: int


class SafetensorsFile:
    """An open safetensors file: its entries in the order of their bytes, and its metadata."""

    def __init__(self, path: Path, file: BinaryIO, entries: list[Entry], metadata: dict[str, str]) -> None:
        self.path = path
        self.entries = entries
        self.metadata = metadata
        self._file = file

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        """The bytes of a tensor, in order. Raises CheckpointError if they cannot be read."""
        try:
            self._file.seek(entry.start)
            left = entry.size
            while left:
                piece = self._file.read(min(left, PIECE))
                if len(piece) < min(left, PIECE):
                    raise _damaged(self.path, f"{printable(entry.name)} ends early")
                left -= len(piece)
                yield piece
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror}") from None


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged or cut short: {why}")


@contextmanager
def open_safetensors(path: Path) -> Iterator[SafetensorsFile]:
    """Open a safetensors file; its header is read and checked. Raises CheckpointError if it is not whole."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        yield _read(path, file)


def _read(path: Path, file: BinaryIO) -> SafetensorsFile:
    size = file.seek(0, 2)
    file.seek(0)
    head = file.read(8)
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    if not 0 < length <= min(size - 8, _MOST):
        raise _damaged(path, "its header is incomplete")
    header = read_json(file.read(length), path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(path, "its metadata is not text")
    entries = sorted(
        (_entry(path, name, told, 8 + length) for name, told in header.items()),
        key=lambda entry: (entry.start, entry.size),
    )
    end = 8 + length
    for entry in entries:
        if entry.start != end:
            raise _damaged(path, f"the bytes of {printable(entry.name)} do not follow those before")
        end += entry.size
    if end != size:
        raise _damaged(path, f"it has {size} bytes, its header says {end}")
    return SafetensorsFile(path, file, entries, metadata)


def _entry(path: Path, name: str, told: Any, base: int) -> Entry:
    label = printable(name)
    told = told if isinstance(told, dict) else {}
    code, shape, offsets = told.get("dtype"), _naturals(told.get("shape")), _naturals(told.get("data_offsets"))
    if not isinstance(code, str) or shape is None or offsets is None or len(offsets) != 2:
        raise _damaged(path, f"the entry of {label} is incomplete")
    dtype = BY_CODE.get(code)
    if dtype is None:
        raise CheckpointError(f"{path}: {label} is of type {printable(code)}, which mps cannot hold: convert it first")
    start, end = offsets
    size = dtype.itemsize * math.prod(shape)
    if end - start != size:
        raise _damaged(path, f"{label} has {end - start} bytes, its shape needs {size}")
    return Entry(name, dtype, shape, base + start, size)


def _naturals(value: Any) -> tuple[int, ...] | None:
    """A list of numbers from 0 on; None for anything else."""
    if isinstance(value, list) and all(type(number) is int and number >= 0 for number in value):
        return tuple(value)
    return None


def read_json(text: bytes, path: Path) -> dict[str, Any]:
    """A JSON object from a file, in which no name may stand twice. Raises CheckpointError if it is none."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise _damaged(path, f"the name {printable(twice)} is in it twice")
        return result

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except CheckpointError:
        raise
    except (ValueError, RecursionError):
        raise _damaged(path, "its JSON cannot be read") from None
    if not isinstance(document, dict):
        raise _damaged(path, "its JSON is not an object")
    return document


@dataclass(frozen=True)
class Part:
    """A tensor to be written: `pieces` is gone through once."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    size: int
    pieces: Iterable[bytes | bytearray]


def write_safetensors(out: BinaryIO, parts: Sequence[Part], metadata: dict[str, str]) -> None:
    """Write a file. The header goes first: every size is known before the first value is read.

    Raises CheckpointError for a name that is no text.
    """
    # The largest elements first, so that each tensor is aligned to its element, as the library does.
    ordered = sorted(parts, key=lambda part: -part.dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    position = 0
    for part in ordered:
        end = position + part.size
        header[part.name] = {"dtype": part.dtype.safetensors, "shape": part.shape, "data_offsets": (position, end)}
        position = end
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        name = printable(str(error.object)[error.start : error.end])
        raise CheckpointError(f"a name holds {name}, which is not text that safetensors can hold") from None
    text += b" " * (-len(text) % 8)
    out.write(struct.pack("<Q", len(text)))
    out.write(text)
    for part in ordered:
        for piece in part.pieces:
            out.write(piece)
