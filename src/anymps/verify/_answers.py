"""The file of a Mac's answers: gzip of one JSON document with a version, read strictly."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anymps._atomic import replacing
from anymps._errors import UsageError
from anymps._numbers import read_json
from anymps._version import __version__
from anymps.verify._form import wrong_place

FORMAT: Final = "anymps-mac-answers"
VERSION: Final = 2
MOST_PACKED: Final = 32 << 20
"""Bytes of a file; a whole run's has about 4 MiB."""
MOST_UNPACKED: Final = 256 << 20

Answer = dict[str, Any]


@dataclass
class Answers:
    """What was asked of a device and what it answered.

    `virtual` tells anymps' own answers from a Mac's. `machine` has the chip, its GPU cores, the memory in GiB, and the
    versions of macOS, torch and Python, each a text or a number. `kinds` says for each kind how many `cases` there are,
    with a `note` if it could not be asked whole. `answers` are by kind and case.
    """

    virtual: bool
    machine: dict[str, Any]
    made: str
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Answer]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of answers of all kinds."""
        return sum(map(len, self.answers.values()))

    def document(self) -> dict[str, Any]:
        """The document."""
        generator = {"name": "anymps", "version": __version__}
        return {"format": FORMAT, "version": VERSION, "generator": generator, **vars(self)}


def write_answers(answers: Answers, path: Path) -> None:
    """Put the file in place in one step: it is there whole, or as before. Raises OSError."""
    text = json.dumps(answers.document(), separators=(",", ":"), allow_nan=False)
    with replacing(path) as file:
        # No name and no time in the header: the same answers give the same file.
        file.write(gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0))


def read_answers(path: Path) -> Answers:
    """The answers in a file. Raises UsageError, in one line, for any file that is not complete and of this version."""
    document = _parsed(_unpacked(path), path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError(f"{path} is not a file of a Mac's answers")
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise UsageError(f"{path} is not a file of a Mac's answers: it has no version")
    if version != VERSION:
        other = "a newer" if version > VERSION else "an older"
        raise UsageError(f"{path} was written by {other} anymps (format version {version}; this one reads {VERSION})")
    wrong = wrong_place(document)
    if wrong:
        raise UsageError(f"{path} cannot be read: {wrong} has not the form of format version {VERSION}")
    return Answers(document["virtual"], document["machine"], document["made"], document["kinds"], document["answers"])


def _unpacked(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(MOST_PACKED + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(packed) > MOST_PACKED:
        raise UsageError(f"{path} is too large: more than {MOST_PACKED >> 20} MiB")
    reader = zlib.decompressobj(wbits=31)  # gzip
    try:
        content = reader.decompress(packed, MOST_UNPACKED + 1)
    except zlib.error:
        raise UsageError(f"{path} is not a gzip file, or is damaged") from None
    if len(content) > MOST_UNPACKED:
        raise UsageError(f"{path} is too large: more than {MOST_UNPACKED >> 20} MiB when decompressed")
    if not reader.eof:
        raise UsageError(f"{path} is truncated")
    if reader.unused_data:
        raise UsageError(f"{path} is damaged: there is data after its end")
    return content


def _parsed(content: bytes, path: Path) -> Any:
    try:
        return read_json(content, most=4_000_000)
    except (ValueError, RecursionError):  # neither UTF-8 nor JSON, or nested without end
        raise UsageError(f"{path} does not contain valid JSON") from None
