"""Writing a file that torch.load reads, storage by storage: the zip archive of torch 1.6 and later.

torch's own writer takes a storage as a whole; the standard library writes such an archive from pieces.
"""

from __future__ import annotations

import struct
import zipfile
from typing import BinaryIO, Final

from anymps.checkpoints._structure import written_structure
from anymps.checkpoints._torch_file import TorchFile
from anymps.checkpoints._values import Loss, converted

_ALIGNMENT: Final = 64  # where storages start in the file, as torch.save lays them, for torch.load(mmap=True)
_ZIP64: Final = 1 << 31  # a record of this size is announced with the larger header


def write_torch(out: BinaryIO, source: TorchFile) -> dict[str, Loss]:
    """Write `source` with its storages converted. Returns what was lost, by the storage's key."""
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
