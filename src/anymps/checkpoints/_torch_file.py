"""A file of torch.save: its structure, and the bytes of its storages one piece at a time. Nothing in it is run.

Two formats are read: the zip archive of torch 1.6 and later, and the stream of pickles before it. The first is written:
torch's own writer takes a storage as a whole, the standard library writes such an archive from pieces.
"""

from __future__ import annotations

import struct
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

from anymps._errors import CheckpointError
from anymps.checkpoints._reading import damaged, pieces_of, reading
from anymps.checkpoints._structure import Storage, read_structure, to_storage, written_structure
from anymps.checkpoints._values import Loss, converted

ZIP_START: Final = b"PK\x03\x04"
LEGACY_START: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickle of the number that a file of the old format begins with."""

_ALIGNMENT: Final = 64  # where storages start in the file, as torch.save lays them, for torch.load(mmap=True)
_ZIP64: Final = 1 << 31  # a record of this size is announced with the larger header


class TorchFile(ABC):
    """An open file of torch.save. `root` is its structure, `storages` are by key.

    The structure is read at once. Raises CheckpointError if it cannot be read, ForeignClassError if it names a class
    that only its own code restores.
    """

    format: ClassVar[str]

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.root: Any = None
        self.storages: dict[str, Storage] = {}
        self._file = file
        self._size = file.seek(0, 2)
        file.seek(0)
        self._read()

    @abstractmethod
    def _read(self) -> None:
        """Set `root` and fill `storages`."""

    @abstractmethod
    def pieces(self, storage: Storage) -> Iterator[bytes]:
        """The bytes of a storage, in order. Raises CheckpointError if they are not all there and whole."""

    def _check_byte_order(self, is_little: bool) -> None:
        if not is_little:
            raise CheckpointError(f"{self.path} was saved on a machine of the other byte order: load and save it there")


class ZipFile(TorchFile):
    """The zip archive of torch 1.6 and later."""

    format = "torch"

    def _read(self) -> None:
        with reading(self.path):
            self._archive = zipfile.ZipFile(self._file)
        self._records = {record.filename: record for record in self._archive.infolist()}
        for name, times in Counter(record.filename for record in self._archive.infolist()).most_common(1):
            if times > 1:
                raise damaged(self.path, f"the record {name} is in it {times} times")
        top = {name.partition("/")[0] for name in self._records}
        self._prefix = f"{min(top)}/" if len(top) == 1 else "/"
        if f"{self._prefix}constants.pkl" in self._records:
            raise CheckpointError(f"{self.path} is a TorchScript program: save its state_dict(), and convert that")
        if f"{self._prefix}data.pkl" not in self._records:
            raise CheckpointError(f"{self.path} is a zip archive, but not one of torch.save")
        if f"{self._prefix}byteorder" in self._records:
            with self._open("byteorder") as record:
                self._check_byte_order(record.read(64) == b"little")
        with self._open("data.pkl") as record:
            size = self._records[f"{self._prefix}data.pkl"].file_size
            self.root = read_structure(record, size, self.path, self._storage)
        # Records that lie in one another would make a larger file than the one that is read.
        if sum(storage.size for storage in self.storages.values()) > self._size:
            raise damaged(self.path, "its storages are larger than the file")

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
            raise damaged(self.path, f"the record {name} is compressed, which torch.save never does")
        with reading(self.path), self._archive.open(record) as stream:
            yield stream

    def pieces(self, storage: Storage) -> Iterator[bytes]:
        """The bytes of a storage; zipfile compares the record's checksum when it is read to its end."""
        with self._open(f"data/{storage.key}") as stream:
            yield from pieces_of(stream, storage.size, self.path, f"the record data/{storage.key}")


class LegacyFile(TorchFile):
    """The stream of pickles of torch before 1.6."""

    format = "torch (old format)"

    def _read(self) -> None:
        _magic, version, system = [read_structure(self._file, self._size, self.path) for _ in range(3)]
        if version != 1001 or not isinstance(system, dict):
            raise damaged(self.path, f"it claims to be version {version}")
        self._check_byte_order(system.get("little_endian") is True)
        self.root = read_structure(self._file, self._size, self.path, self._storage)
        self._starts = self._find(read_structure(self._file, self._size, self.path))

    def _storage(self, pid: tuple[Any, ...]) -> Storage:
        if len(pid) != 6 or pid[5] is not None:
            raise ValueError("a storage that is a part of another one, as torch before 0.4 saved them")
        return to_storage(*pid[1:5], self.storages)

    def _find(self, keys: Any) -> dict[str, int]:
        """Where each storage's bytes begin: behind the pickles, each behind its number of elements."""
        starts: dict[str, int] = {}
        if not isinstance(keys, list) or len(keys) != len(self.storages):
            raise damaged(self.path, "the list of its storages is incomplete")
        for key in keys:
            storage = self.storages.get(key) if isinstance(key, str) else None
            if storage is None or key in starts:
                raise damaged(self.path, "the list of its storages does not fit its tensors")
            head = self._file.read(8)
            if len(head) < 8 or struct.unpack("<q", head) != (storage.count,):
                raise damaged(self.path, f"the size of storage {key} is missing or wrong")
            starts[key] = self._file.tell()
            if starts[key] + storage.size > self._size:
                raise damaged(self.path, f"storage {key} ends past the end of the file")
            self._file.seek(storage.size, 1)
        return starts

    def pieces(self, storage: Storage) -> Iterator[bytes]:
        """The bytes of a storage."""
        self._file.seek(self._starts[storage.key])
        yield from pieces_of(self._file, storage.size, self.path, f"storage {storage.key}")


def write_torch(out: BinaryIO, source: TorchFile) -> dict[str, Loss]:
    """Write `source` as a zip archive with its storages converted. Returns what was lost, by the storage's key."""
    losses: dict[str, Loss] = {}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _record(archive, "data.pkl", written_structure(source.root, source.path))
        _record(archive, "byteorder", b"little")
        for key, storage in source.storages.items():
            loss = losses[key] = Loss()
            size = storage.new_size
            with archive.open(_header(archive, f"data/{key}", size), "w", force_zip64=size >= _ZIP64) as record:
                for piece in converted(source.pieces(storage), storage.dtype, loss):
                    record.write(piece)
        _record(archive, "version", b"3\n")
    return losses


def _record(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    with archive.open(_header(archive, name, len(content)), "w") as record:
        record.write(content)


def _header(archive: zipfile.ZipFile, name: str, size: int) -> zipfile.ZipInfo:
    """A record's header, with a field that fills it up so that the content is aligned; the date is always the same."""
    info = zipfile.ZipInfo(f"archive/{name}")
    info.file_size = size
    large = 20 if size >= _ZIP64 else 0
    start = archive.start_dir + 30 + len(info.filename) + large + 4
    fill = -start % _ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", fill) + b"Z" * fill
    return info
