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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from anymps._errors import CheckpointError
from anymps.checkpoints._dtypes import BY_CODE, Dtype
from anymps.checkpoints._reading import damaged, pieces_of, printable

_MOST: Final = 100_000_000  # bytes of header that the library takes (safetensors 0.8, safetensors/src/tensor.rs)


@dataclass(frozen=True)
class Entry:
    """A tensor in a file: `start` counts from the file's first byte, `size` is in bytes."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    start: int
    size: int


class SafetensorsFile:
    """An open safetensors file: its entries in the order of their bytes, and its metadata.

    The header is read and checked at once. Raises CheckpointError if it does not fit the file.
    """

    format: Final = "safetensors"

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 0 < length <= min(size - 8, _MOST):
            raise damaged(path, "its header is incomplete")
        header = read_json(file.read(length), path)
        self.metadata = header.pop("__metadata__", {})
        if not isinstance(self.metadata, dict) or not all(isinstance(text, str) for text in self.metadata.values()):
            raise damaged(path, "its metadata is not text")
        end = 8 + length
        entries = (_entry(path, name, told, end) for name, told in header.items())
        self.entries = sorted(entries, key=lambda entry: (entry.start, entry.size))
        for entry in self.entries:
            if entry.start != end:
                raise damaged(path, f"the bytes of {printable(entry.name)} do not follow those before")
            end += entry.size
        if end != size:
            raise damaged(path, f"it has {size} bytes, its header says {end}")

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        """The bytes of a tensor, in order. Raises CheckpointError if they cannot be read."""
        self._file.seek(entry.start)
        yield from pieces_of(self._file, entry.size, self.path, printable(entry.name))


def _entry(path: Path, name: str, told: Any, base: int) -> Entry:
    label = printable(name)
    told = told if isinstance(told, dict) else {}
    code, shape, offsets = told.get("dtype"), _naturals(told.get("shape")), _naturals(told.get("data_offsets"))
    if not isinstance(code, str) or shape is None or offsets is None or len(offsets) != 2:
        raise damaged(path, f"the entry of {label} is incomplete")
    dtype = BY_CODE.get(code)
    if dtype is None:
        raise CheckpointError(f"{path}: {label} is of type {printable(code)}, which mps cannot hold: convert it first")
    start, end = offsets
    size = dtype.itemsize * math.prod(shape)
    if end - start != size:
        raise damaged(path, f"{label} has {end - start} bytes, its shape needs {size}")
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
            raise damaged(path, f"the name {printable(twice)} is in it twice")
        return result

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except CheckpointError:
        raise
    except (ValueError, RecursionError):
        raise damaged(path, "its JSON cannot be read") from None
    if not isinstance(document, dict):
        raise damaged(path, "its JSON is not an object")
    return document


@dataclass(frozen=True)
class Part:
    """A tensor to be written: `pieces` is gone through once."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    pieces: Iterable[bytes | bytearray]

    @property
    def size(self) -> int:
        """Its bytes in the file."""
        return self.dtype.itemsize * math.prod(self.shape)


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
