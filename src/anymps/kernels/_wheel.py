"""The macOS wheel of PyTorch: its release, and the compiled Metal kernels that its library holds.

The library has the same kernels twice: in the section `metal_basic`, for macOS 14 and later, and in `metal_40`, in the
form of macOS 26. anymps reads the first: the second may hold instructions that only Apple's driver knows. Source of the
library's format, Mach-O: the structures of <mach-o/loader.h> (mach_header_64, section_64), little endian.
"""

from __future__ import annotations

import email.parser
import lzma
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from anymps._cache import sha256_of
from anymps._errors import KernelsError

SECTION = "metal_basic"
_LIBRARY = "torch/lib/libtorch_cpu.dylib"
_PIECE = 1 << 22
# What no wheel of torch comes near: a file that states more is refused before it is unpacked.
_MOST_METADATA = 1 << 20
_MOST_LIBRARY = 2 << 30
_MOST_KERNELS = 1 << 30
_CONSTRAINT = re.compile(r"The user requested \(constraint\) (.+)")
_MAGIC = b"PK\x03\x04"
_T = TypeVar("_T")
PLATFORM = "macosx_14_0_arm64"
_MACHO = 0xFEEDFACF
_HEADER = struct.Struct("<8I")
_NAME_BYTES = 16  # of a section
_BEHIND = 2 * _NAME_BYTES + 8  # the names of a section and of its segment, and its address
_PLACE = struct.Struct("<QI")  # its size, and where it begins in the file
_MOST_COMMANDS = 1 << 20  # bytes; what asks for more is no library
# What zipfile raises for damaged archives: RuntimeError where a record says that it is encrypted, ValueError for names
# that are no text, OverflowError and struct.error for numbers that make no sense.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError, ValueError,
    OverflowError, struct.error,
)  # fmt: skip


def read_release(wheel: Path) -> str:
    """The release of torch that a wheel holds, such as 2.13.0.

    Raises KernelsError, in one line, if it is not a wheel of torch for macOS, or is cut short.
    """
    with _opened(wheel) as archive:
        names = archive.namelist()
        metadata = next((name for name in names if re.fullmatch(r"torch-[^/]*\.dist-info/METADATA", name)), None)
        if metadata is None:
            raise KernelsError(f"{wheel} is not a wheel of torch")
        if _LIBRARY not in names:
            raise KernelsError(
                f"{wheel} is not a macOS wheel: Metal kernels are in the one that ends in {PLATFORM}.whl"
            )
        text = _guarded(wheel, lambda: _read(wheel, archive, metadata, _MOST_METADATA))
    # A header that is no ASCII is no text but an object.
    version = str(email.parser.BytesParser().parsebytes(text)["Version"])
    if not re.fullmatch(r"\d{1,4}\.\d{1,4}[\w.+]{0,40}", version, re.ASCII):
        raise KernelsError(f"{wheel} does not say which release of torch it is")
    return version.partition("+")[0]


def read_kernels(wheel: Path) -> Iterator[bytes]:
    """The compiled kernels of a wheel, as one container in pieces.

    Raises KernelsError, in one line, if they are not there or the wheel is cut short.
    """
    with _opened(wheel) as archive, _guarded(wheel, lambda: archive.open(_LIBRARY)) as library:
        seen, stated = 0, archive.getinfo(_LIBRARY).file_size
        if stated > _MOST_LIBRARY:
            raise _too_large(wheel, _LIBRARY, stated, _MOST_LIBRARY)

        def read(size: int) -> bytes:
            nonlocal seen
            data: bytes = _guarded(wheel, lambda: library.read(size))
            seen += len(data)
            return data

        try:
            start, size = _kernels_at(read)
        except ValueError as error:
            raise KernelsError(f"{_LIBRARY} of {wheel} cannot be read: {error}") from None
        if start < seen:
            raise KernelsError(f"{_LIBRARY} of {wheel} holds no Metal kernels (section {SECTION})")
        if size > _MOST_KERNELS:
            raise _too_large(wheel, f"the section {SECTION} of {_LIBRARY}", size, _MOST_KERNELS)
        if start + size > stated:
            raise KernelsError(f"{_LIBRARY} of {wheel} ends in the middle of its Metal kernels")
        while seen < start and read(min(_PIECE, start - seen)):
            pass
        end = start + size
        while seen < end and (piece := read(min(_PIECE, end - seen))):
            yield piece
        if seen < end:
            raise KernelsError(f"{_LIBRARY} of {wheel} ends in the middle of its Metal kernels")


def download(release: str, folder: Path) -> Path:
    """Has pip download the macOS wheel of a release into `folder`, and returns its place.

    Raises KernelsError if it cannot: with the constraint that forbids the release, or else with pip's last line.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--platform", PLATFORM]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command += ["--python-version", python, "--disable-pip-version-check", "-d", str(folder), f"torch=={release}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise KernelsError(f"pip cannot be run: {error.strerror or error}") from None
    found = sorted(folder.glob("torch-*.whl"))
    if answer.returncode or not found:
        reason = _constraint(answer.stdout) or _constraint(answer.stderr)
        if reason is None:
            lines = [line for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
            reason = lines[-1].strip() if lines else f"it ended with exit code {answer.returncode}"
        raise KernelsError(f"pip cannot download torch {release} for {PLATFORM}: {reason}")
    return found[0]


def _constraint(text: str) -> str | None:
    """What pip says above its last line where a constraints file of this machine forbids a release."""
    found = _CONSTRAINT.search(text)
    return found and f"pip's settings on this machine require {found[1].strip()} (PIP_CONSTRAINT, pip config list)"


def wheel_digest(wheel: Path) -> str:
    """The SHA-256 of a wheel, as package indexes state it. Raises KernelsError if it cannot be read."""
    return _guarded(wheel, lambda: sha256_of(wheel))


def _read(wheel: Path, archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A small file of an archive. What it is said to have is not believed: it may have more."""
    stated = archive.getinfo(name).file_size
    if stated <= most:
        with archive.open(name) as file:
            data = file.read(most + 1)
        if len(data) <= most:
            return data
    raise _too_large(wheel, name, stated, most)


def _too_large(wheel: Path, name: str, size: int, most: int) -> KernelsError:
    return KernelsError(f"{name} of {wheel} has {size:,} bytes; a wheel of torch has at most {most:,} there")


def _opened(wheel: Path) -> zipfile.ZipFile:
    def opened() -> zipfile.ZipFile:
        with wheel.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise zipfile.BadZipFile
        return zipfile.ZipFile(wheel)

    return _guarded(wheel, opened)


def _guarded(wheel: Path, action: Callable[[], _T]) -> _T:
    try:
        return action()
    except KernelsError:
        raise
    except _DAMAGE:
        raise KernelsError(f"{wheel} is not a wheel, or is cut short") from None
    except OSError as error:
        raise KernelsError(f"{wheel} cannot be read: {error.strerror or error}") from None


def _kernels_at(read: Callable[[int], bytes]) -> tuple[int, int]:
    """Where the kernels begin in a library, and how many bytes they have; at 0 if it has none.

    `read(n)` gives the next n bytes of it, from its start on. Raises ValueError if it is no 64-bit Mach-O library.
    """
    magic, _, _, _, _, size, _, _ = _HEADER.unpack(read(_HEADER.size).ljust(_HEADER.size, b"\0"))
    if magic != _MACHO or size > _MOST_COMMANDS:
        raise ValueError("it is not a 64-bit Mach-O library")
    commands = read(size) + bytes(_BEHIND + _PLACE.size)  # which may end in the name
    found = commands.find(SECTION.encode().ljust(_NAME_BYTES, b"\0"))  # as its command names it
    if found < 0:
        return 0, 0
    size, start = _PLACE.unpack_from(commands, found + _BEHIND)
    return start, size
