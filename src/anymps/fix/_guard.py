"""Writing a fixed script: only over a file that git keeps as it is, and whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
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


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` in a file's place in one move, with its permissions. Raises UsageError, in one line, if it cannot."""
    target = path.resolve()
    name = ""
    try:
        number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with open(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(target, name)
        os.replace(name, target)
    except OSError as error:
        if name and os.path.exists(name):
            os.unlink(name)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
