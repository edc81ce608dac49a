"""A file of torch.save: its structure, and the bytes of its storages one piece at a time. Nothing in it is run.

Two formats: the zip archive of torch 1.6 and later, and the stream of pickles before it.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from anymps._errors import CheckpointError
from anymps.checkpoints._structure import Storage, read_structure, to_storage
from anymps.checkpoints._values import PIECE
from anymps.checkpoints._words import printable

ZIP_START: Final = b"PK\x03\x04"
LEGACY_START: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickle of the number that a file of the old format begins with."""

_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, struct.error)


class TorchFile(ABC):
    """An open file of torch.save. `root` is its structure, `storages` are by key."""

    format: str

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path = path
        self.root: Any = None
        self.storages: dict[str, Storage] = {}
        self._file = file
        self._size = size

    @abstractmethod
    def pieces(self, storage: Storage) -> Iterator[bytes]:
        """The bytes of a storage, in order. Raises CheckpointError if they are not all there and whole."""

    def damaged(self, why: object) -> CheckpointError:
        """The error for a file that cannot be read through."""
        return CheckpointError(f"{self.path} is damaged or cut short: {printable(str(why))}")


@contextmanager
def open_torch_file(path: Path) -> Iterator[TorchFile]:
    """Open a file of torch.save and read its structure.

    Raises CheckpointError if it cannot be read, ForeignClassError if it names a class that only its own code restores.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        start = file.read(len(LEGACY_START))
        size = file.seek(0, 2)
        file.seek(0)
        yield (_ZipFile if start.startswith(ZIP_START) else _LegacyFile)(path, file, size)


class _ZipFile(TorchFile):
    format = "torch"

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        super().__init__(path, file, size)
        try:
            self._archive = zipfile.ZipFile(file)
        except _DAMAGE as error:
            raise self.damaged(error) from None
        self._records = records = {record.filename: record for record in self._archive.infolist()}
        for name, times in Counter(record.filename for record in self._archive.infolist()).most_common(1):
            if times > 1:
                raise self.damaged(f"the record {name} is in it {times} times")
        top = {name.partition("/")[0] for name in records}
        self._prefix = f"{min(top)}/" if len(top) == 1 else "/"
        if f"{self._prefix}constants.pkl" in records:
            raise CheckpointError(f"{path} is a TorchScript program: save its state_dict(), and convert that")
        if f"{self._prefix}data.pkl" not in records:
            raise CheckpointError(f"{path} is a zip archive, but not one of torch.save")
        if self._small("byteorder", b"little") != b"little":
            raise CheckpointError(f"{path} was saved on a machine of the other byte order: load and save it there")
        with self._open("data.pkl") as record:
            self.root = read_structure(record, self._records[f"{self._prefix}data.pkl"].file_size, path, self._storage)
        if sum(storage.size for storage in self.storages.values()) > size:
            raise self.damaged("its storages are larger than the file")

    def _storage(self, pid: tuple[Any, ...]) -> Storage:
        if len(pid) != 5:
            raise ValueError("a storage without a size")
        storage = to_storage(*pid[1:], self.storages)
        record = self._records.get(f"{self._prefix}data/{storage.key}")
        if record is None or record.file_size < storage.size:
            has = record.file_size if record else "no"
            raise ValueError(f"storage {storage.key} has {has} bytes of {storage.size}")
        return storage

    @contextmanager
    def _open(self, name: str) -> Iterator[Any]:
        record = self._records[self._prefix + name]
        if record.compress_type != zipfile.ZIP_STORED:
            raise self.damaged(f"the record {name} is compressed, which torch.save never does")
        try:
            with self._archive.open(record) as stream:
                yield stream
        except CheckpointError:
            raise
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror or error}") from None
        except _DAMAGE as error:
            raise self.damaged(error) from None

    def _small(self, name: str, default: bytes) -> bytes:
        if self._prefix + name not in self._records:
            return default
        with self._open(name) as stream:
            return bytes(stream.read(64))

    def pieces(self, storage: Storage) -> Iterator[bytes]:
        left = storage.size
        record = f"data/{storage.key}"
        with self._open(record) as stream:
            while left:
                piece = stream.read(min(left, PIECE))
                if len(piece) < min(left, PIECE):
                    raise EOFError(f"the record {record} ends early")
                left -= len(piece)
                yield piece


class _LegacyFile(TorchFile):
    format = "torch (old format)"

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        super().__init__(path, file, size)
        _magic, version, system = [read_structure(file, size, path) for _ in range(3)]
        if version != 1001 or not isinstance(system, dict):
            raise self.damaged(f"it claims to be version {version}")
        if system.get("little_endian") is not True:
            raise CheckpointError(f"{path} was saved on a machine of the other byte order: load and save it there")
        self.root = read_structure(file, size, path, self._storage)
        keys = read_structure(file, size, path)
        self._starts = self._find(keys)

    def _storage(self, pid: tuple[Any, ...]) -> Storage:
        if len(pid) != 6 or pid[5] is not None:
            raise ValueError("a storage that is a part of another one, as torch before 0.4 saved them")
        return to_storage(*pid[1:5], self.storages)

    def _find(self, keys: Any) -> dict[str, int]:
        """Where each storage's bytes begin: behind the pickles, each behind its number of elements."""
        starts: dict[str, int] = {}
        if not isinstance(keys, list) or len(keys) != len(self.storages):
            raise self.damaged("the list of its storages is incomplete")
        for key in keys:
            storage = self.storages.get(key) if isinstance(key, str) else None
            if storage is None or key in starts:
                raise self.damaged("the list of its storages does not fit its tensors")
            head = self._file.read(8)
            if len(head) < 8 or struct.unpack("<q", head) != (storage.count,):
                raise self.damaged(f"the size of storage {key} is missing or wrong")
            starts[key] = self._file.tell()
            if starts[key] + storage.size > self._size:
                raise self.damaged(f"storage {key} ends past the end of the file")
            self._file.seek(storage.size, 1)
        return starts

    def pieces(self, storage: Storage) -> Iterator[bytes]:
        try:
            self._file.seek(self._starts[storage.key])
            left = storage.size
            while left:
                piece = self._file.read(min(left, PIECE))
                if len(piece) < min(left, PIECE):
                    raise self.damaged(f"storage {storage.key} ends early")
                left -= len(piece)
                yield piece
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror}") from None
