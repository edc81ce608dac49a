"""Reads a checkpoint with torch and safetensors: no code in it runs, and what fails is one line about the file."""

from __future__ import annotations

import os
import re
import stat
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from anymps._errors import CheckpointError
from anymps._text import clean, first_line

_ROOM: Final = 1 << 29
"""Bytes that a file may take beyond its tensors: their names, and all else in it."""
_ZIP: Final = b"PK\x03\x04"
_LEGACY: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickle of the number that a torch file begins with, before torch 1.6."""


@dataclass
class Checkpoint:
    """What a file holds. `root` is a dict of tensors if it is a safetensors file."""

    path: Path
    format: str
    root: Any
    metadata: dict[str, str] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    """Where its tensors were when it was saved, apart from the CPU."""


def shown(text: str) -> str:
    """A name from a file on one line, without control characters and not longer than a line."""
    line = clean(text)
    return line if len(line) <= 200 else f"{line[:199]}…"


def damaged(path: Path, why: object) -> CheckpointError:
    """The error for a file that cannot be read through."""
    return CheckpointError(f"{path} is damaged or cut short: {shown(str(why))}")


def format_of(path: Path) -> str:
    """The format of a file, by its first bytes. Raises CheckpointError for any other file."""
    with reading(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path} is not a file")
        with path.open("rb") as file:
            start = file.read(len(_LEGACY))
    if start.startswith(_ZIP):
        return "torch"
    if start == _LEGACY:
        return "torch (old format)"
    if start[8:9] == b"{":
        return "safetensors"
    if not start:
        raise CheckpointError(f"{path} is empty")
    raise CheckpointError(f"{path} is neither a safetensors file nor a torch.save file, or its start is damaged")


def read(path: Path) -> Checkpoint:
    """Read a file; its tensors are mapped, and read when they are used.

    Raises CheckpointError if it cannot be read, or names a class that only its own code restores.
    """
    kind = format_of(path)
    import torch  # noqa: F401 - while memory is not bounded yet: a build for CUDA takes gigabytes

    with reading(path):
        if kind == "safetensors":
            with safetensors().safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return Checkpoint(path, kind, tensors, file.metadata() or {})
        if kind == "torch":
            _check_archive(path)
        return _read_torch(path, kind)


def _read_torch(path: Path, kind: str) -> Checkpoint:
    import torch

    rest = path.stat().st_size
    devices: set[str] = set()

    def keep(storage: Any, device: str) -> Any:
        """Take each storage as it is, and note its device. Records that lie in one another would make a larger file."""
        nonlocal rest
        rest -= storage.nbytes()
        if rest < 0:
            raise CheckpointError(f"{path} is damaged: its storages are larger than the file")
        devices.add(str(device))  # a hostile file names anything
        return storage

    root = torch.load(path, map_location=keep, weights_only=True, mmap=kind == "torch")
    return Checkpoint(path, kind, root, devices=devices - {"cpu"})


def _check_archive(path: Path) -> None:
    """Refuse what torch.save does not write, and bytes that changed on the disk: torch compares no checksums."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
        for record in records:
            if record.compress_type != zipfile.ZIP_STORED:
                raise damaged(path, f"the record {record.filename} is compressed, which torch.save never does")
        if sum(record.file_size for record in records) > path.stat().st_size:
            raise damaged(path, "its records are larger than the file")
        wrong = archive.testzip()
        if wrong is not None:
            raise damaged(path, f"the checksum of {wrong} is wrong")


def safetensors() -> ModuleType:
    """The library of that name. Raises CheckpointError if it is not installed."""
    try:
        import safetensors
        import safetensors.torch
    except ImportError:
        raise CheckpointError(
            "safetensors files need the library of that name: pip install safetensors numpy"
        ) from None
    return safetensors


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What fails in the block is a CheckpointError about `path`: the system's refusals, damage, too much memory."""
    try:
        with _bounded_memory(3 * os.stat(path).st_size + _ROOM), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the file holds; none of it is to be used
            yield
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise CheckpointError(f"{path} takes far more memory than its size, and is not read") from None
    except (zipfile.BadZipFile, EOFError) as error:
        raise damaged(path, str(error) or "it ends early") from None
    except RecursionError:
        raise CheckpointError(f"{path} is nested too deep") from None
    except Exception as error:
        # Whatever a damaged or hostile file makes the libraries raise is about the file.
        raise _refusal(path, str(error) or type(error).__name__) from None


def _refusal(path: Path, text: str) -> CheckpointError:
    found = re.search(r"GLOBAL (\S+)", text)
    if found and "_rebuild_qtensor" not in text:
        return CheckpointError(
            f"{path} names {shown(found[1])}, which cannot be restored without running code from the file: "
            "save it again with only the state dict and plain values"
        )
    if "can't allocate memory" in text:
        return CheckpointError(f"{path} takes far more memory than its size, and is not read")
    why = first_line(text.rpartition("WeightsUnpickler error: ")[2]).removeprefix("Error while deserializing header: ")
    return CheckpointError(f"{path} cannot be read: {shown(why)}")


@contextmanager
def _bounded_memory(more: int) -> Iterator[None]:
    """No more than so many bytes are allocated in the block, where the system can hold a process to that (Linux)."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            limit = int(file.read().split()[5]) * resource.getpagesize() + more
    except (ImportError, OSError):
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    ends = [end for end in (limit, *before) if end != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(ends), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
