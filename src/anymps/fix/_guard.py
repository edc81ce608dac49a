"""Writing fixed files: only over those that git keeps as they are, and all of them or none."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from anymps._errors import UsageError


def check_may_write(path: Path) -> None:
    """Raise UsageError, in one line, for a file that git does not keep, or not as it stands."""
    git = shutil.which("git")
    if git is None:
        raise UsageError(f"{path} is not written: there is no git that keeps it as it is (--force writes it)")
    folder = path.resolve().parent

    def asked(*words: str) -> int:
        command = [git, "-C", str(folder), *words, "--", path.resolve().name]
        return subprocess.run(command, check=False, capture_output=True).returncode

    if asked("ls-files", "--error-unmatch"):
        raise UsageError(f"{path} is not written: it is not under version control (--force writes it)")
    if asked("diff", "--quiet", "HEAD"):
        raise UsageError(f"{path} is not written: it differs from HEAD; commit it first (--force writes it)")


def write_all(files: Mapping[Path, bytes], before: Mapping[Path, bytes]) -> None:
    """Put new data in the place of files that hold `before`, each in one move, with its permissions: all or none.

    Raises UsageError, in one line, if one has changed since it was read or cannot be written; then all are as before.
    """
    for path in files:
        if _held(path) != before[path]:
            raise UsageError(f"{path} is not written: it has changed since")
    staged: dict[Path, str] = {}
    moved: list[Path] = []
    path = Path()
    try:
        for path, data in files.items():
            staged[path] = _stage(path.resolve(), data)
        for path in files:
            os.replace(staged[path], path.resolve())
            moved.append(path)
    except OSError as error:
        for other in moved:
            os.replace(_stage(other.resolve(), before[other]), other.resolve())
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        for name in staged.values():
            with suppress(FileNotFoundError):
                os.unlink(name)


def _held(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _stage(target: Path, data: bytes) -> str:
    """A file beside a target, with its permissions and the data, on the disk for good."""
    number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(target, name)
    except OSError:
        os.unlink(name)
        raise
    return name
