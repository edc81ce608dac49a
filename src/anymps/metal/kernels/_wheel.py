"""The macOS wheel of PyTorch: its release, and the compiled Metal kernels that its library holds.

The library has the same kernels twice: in the section `metal_basic`, for macOS 14 and later, and in `metal_40`, in
the form of macOS 26. The first is read: the second may hold instructions that only Apple's driver knows.
"""

from __future__ import annotations

import email.parser
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from anymps._errors import KernelsError
from anymps.metal.kernels._macho import read_sections

SECTION = "metal_basic"
_LIBRARY = "torch/lib/libtorch_cpu.dylib"
_PIECE = 1 << 22
_T = TypeVar("_T")
PLATFORM = "macosx_14_0_arm64"


def read_release(wheel: Path) -> str:
    """The release of torch that a wheel holds, such as 2.13.0.

    Raises KernelsError, in one line, if it is no wheel of torch for macOS, or is cut short.
    """
    with _opened(wheel) as archive:
        names = archive.namelist()
        metadata = next((name for name in names if re.fullmatch(r"torch-[^/]*\.dist-info/METADATA", name)), None)
        if metadata is None:
            raise KernelsError(f"{wheel} is no wheel of torch")
        if _LIBRARY not in names:
            raise KernelsError(f"{wheel} is no macOS wheel: Metal kernels are in the one that ends in {PLATFORM}.whl")
        version = email.parser.BytesParser().parsebytes(_guarded(wheel, lambda: archive.read(metadata)))["Version"]
    if not version or not re.fullmatch(r"\d+\.\d+[\w.+]*", version):
        raise KernelsError(f"{wheel} does not say which release of torch it is")
    return str(version).partition("+")[0]


def read_kernels(wheel: Path) -> Iterator[bytes]:
    """The compiled kernels of a wheel, as one container in pieces.

    Raises KernelsError, in one line, if they are not there or the wheel is cut short.
    """
    with _opened(wheel) as archive, _guarded(wheel, lambda: archive.open(_LIBRARY)) as library:
        seen = 0

        def read(size: int) -> bytes:
            nonlocal seen
            data: bytes = _guarded(wheel, lambda: library.read(size))
            seen += len(data)
            return data

        try:
            section = next((one for one in read_sections(read) if one.name == SECTION), None)
        except ValueError as error:
            raise KernelsError(f"{_LIBRARY} of {wheel} cannot be read: {error}") from None
        if section is None or section.offset < seen:
            raise KernelsError(f"{_LIBRARY} of {wheel} holds no Metal kernels (section {SECTION})")
        while seen < section.offset and read(min(_PIECE, section.offset - seen)):
            pass
        end = section.offset + section.size
        while seen < end and (piece := read(min(_PIECE, end - seen))):
            yield piece
        if seen < end:
            raise KernelsError(f"{_LIBRARY} of {wheel} ends within its Metal kernels")


def download(release: str, folder: Path) -> Path:
    """Has pip download the macOS wheel of a release into `folder`, and returns its place.

    Raises KernelsError with pip's last line if it cannot.
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
        lines = [line for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"it ended with exit code {answer.returncode}"
        raise KernelsError(f"pip cannot download torch {release} for {PLATFORM}: {reason}")
    return found[0]


def _opened(wheel: Path) -> zipfile.ZipFile:
    return _guarded(wheel, lambda: zipfile.ZipFile(wheel))


def _guarded(wheel: Path, action: Callable[[], _T]) -> _T:
    try:
        return action()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        raise KernelsError(f"{wheel} is no wheel, or it was cut short") from None
    except OSError as error:
        raise KernelsError(f"{wheel} cannot be read: {error.strerror or error}") from None
