"""Where a section of a Mach-O library lies: the file format of libraries on macOS.

Source: the structures of <mach-o/loader.h> (mach_header_64, segment_command_64, section_64), little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

_MAGIC_64 = 0xFEEDFACF
_SEGMENT_64 = 0x19
_HEADER = struct.Struct("<8I")
_COMMAND = struct.Struct("<2I")
_SECTIONS_AT = 72  # of a segment command, after its own fields
_SECTION_BYTES = 80
_MOST_COMMANDS = 1 << 20  # bytes; what asks for more is no library


@dataclass(frozen=True)
class Section:
    """A section by its name: where it begins in the file, and its bytes."""

    name: str
    offset: int
    size: int


def read_sections(read: Callable[[int], bytes]) -> list[Section]:
    """The sections of a library; `read(n)` gives the next n bytes of it, from its start on.

    Raises ValueError if it is not a 64-bit Mach-O library or ends too early.
    """
    magic, _, _, _, count, size, _, _ = _HEADER.unpack(_exactly(read, _HEADER.size))
    if magic != _MAGIC_64 or size > _MOST_COMMANDS:
        raise ValueError("it is not a 64-bit Mach-O library")
    commands = _exactly(read, size)
    found = []
    at = 0
    for _ in range(count):
        if at + _COMMAND.size > size:
            raise ValueError("its load commands end too early")
        kind, length = _COMMAND.unpack_from(commands, at)
        if length < _COMMAND.size or at + length > size:
            raise ValueError("its load commands end too early")
        if kind == _SEGMENT_64:
            found += _sections(commands[at : at + length])
        at += length
    return found


def _sections(command: bytes) -> list[Section]:
    if len(command) < _SECTIONS_AT:
        raise ValueError("its load commands end too early")
    (count,) = struct.unpack_from("<I", command, 64)
    if _SECTIONS_AT + count * _SECTION_BYTES > len(command):
        raise ValueError("its load commands end too early")
    found = []
    for start in range(_SECTIONS_AT, _SECTIONS_AT + count * _SECTION_BYTES, _SECTION_BYTES):
        name = command[start : start + 16].rstrip(b"\0").decode("ascii", "replace")
        _, size, offset = struct.unpack_from("<QQI", command, start + 32)
        found.append(Section(name, offset, size))
    return found


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    data = read(size)
    if len(data) != size:
        raise ValueError("it ends too early")
    return data
