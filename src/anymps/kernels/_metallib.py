"""The container of compiled Metal kernels (a metallib): their names and the bitcode of each.

All numbers are little endian. A header of 88 bytes names four parts; the first lists the functions, the last holds one
module of bitcode for each. An entry of the list is a row of tags: four letters, a length of 16 bits, data.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"MTLB"
_HEADER = struct.Struct("<4sHHHBBHHQ8Q")
_KERNEL = 2  # of the tag TYPE: a compute kernel
_WRAPPER = struct.Struct("<5I")  # magic, version, offset, size, CPU: LLVM's bitcode wrapper
_MOST_SHARED = 16  # how many kernels may have the same bytes, on average
_WRAPPER_MAGIC = 0x0B17C0DE


@dataclass(frozen=True)
class StoredKernel:
    """One kernel of a container: where its bitcode lies in the file, and the SHA-256 of it."""

    name: str
    offset: int
    size: int
    digest: bytes


class Metallib:
    """A container on disk. Reads its list of functions at once, the bitcode of a kernel when it is asked for.

    Raises ValueError if the file is no container, is cut short or does not agree with itself, OSError if it cannot be
    read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.kernels = _read_list(file.read, os.fstat(file.fileno()).st_size)

    def blob(self, name: str) -> bytes:
        """What is stored of a kernel, its wrapper included. Raises KeyError, and ValueError where it was changed."""
        kernel = self.kernels[name]
        with self.path.open("rb") as file:
            file.seek(kernel.offset)
            data = file.read(kernel.size)
        if hashlib.sha256(data).digest() != kernel.digest:
            raise ValueError(f"the kernel {name} is damaged: its digest does not match")
        return data

    def bitcode(self, name: str) -> bytes:
        """The LLVM module of a kernel. Raises KeyError, and ValueError where it was changed."""
        data = self.blob(name)
        if len(data) < _WRAPPER.size:
            raise ValueError(f"the kernel {name} has no bitcode")
        magic, _, offset, size, _ = _WRAPPER.unpack_from(data)
        if magic != _WRAPPER_MAGIC or offset + size > len(data):
            raise ValueError(f"the kernel {name} has no bitcode")
        return data[offset : offset + size]


def _read_list(read: Callable[[int], bytes], size: int) -> dict[str, StoredKernel]:
    header = read(_HEADER.size)
    if len(header) < _HEADER.size or header[:4] != _MAGIC:
        raise ValueError("it is not a Metal library")
    fields = _HEADER.unpack(header)
    stated, parts = fields[8], fields[9:]
    if stated != size:
        raise ValueError(f"it has {size:,} bytes, and should have {stated:,}")
    (functions, functions_size), (code, code_size) = parts[0:2], parts[6:8]
    if functions != _HEADER.size or functions + functions_size > size or code + code_size > size:
        raise ValueError("its parts lie outside the file")
    data = read(functions_size + 4)  # the length does not count the number in front
    (count,) = struct.unpack_from("<I", data) if len(data) >= 4 else (0,)
    found: dict[str, StoredKernel] = {}
    at, total = 4, 0
    for _ in range(count):
        if at + 4 > len(data):
            raise ValueError("its list of functions ends too early")
        (length,) = struct.unpack_from("<I", data, at)
        if length < 8 or at + length > len(data):
            raise ValueError("its list of functions ends too early")
        kernel = _entry(data[at + 4 : at + length], code, code_size)
        if kernel is not None:
            found[kernel.name] = kernel
            total += kernel.size
            if total > _MOST_SHARED * code_size:  # each is read: a small file must not become a long task
                raise ValueError("its kernels overlap")
        at += length
    return found


def _entry(data: bytes, code: int, code_size: int) -> StoredKernel | None:
    """One function of the list; None for one that is no kernel."""
    tags: dict[bytes, bytes] = {}
    at = 0
    while data[at : at + 4] != b"ENDT":
        if at + 6 > len(data):
            raise ValueError("an entry of its list of functions has no end")
        (length,) = struct.unpack_from("<H", data, at + 4)
        tags[data[at : at + 4]] = data[at + 6 : at + 6 + length]
        at += 6 + length
    try:
        if tags.get(b"TYPE", b"\xff")[0] != _KERNEL:
            return None
        name = tags[b"NAME"].rstrip(b"\0").decode()
        (size,) = struct.unpack("<Q", tags[b"MDSZ"])
        _, _, offset = struct.unpack("<3Q", tags[b"OFFT"])
        digest = tags[b"HASH"]
    except (KeyError, IndexError, UnicodeDecodeError, struct.error):
        raise ValueError("an entry of its list of functions cannot be read") from None
    if offset + size > code_size:
        raise ValueError(f"the kernel {name} lies outside the file")
    return StoredKernel(name, code + offset, size, digest)
