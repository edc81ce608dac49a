"""The changes of a program as a patch, or written: only files that git can restore, and all of them or none."""

from __future__ import annotations

import difflib
import io
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from anymps._atomic import Staged, check_not_read_only
from anymps._errors import UsageError
from anymps.fix._script import Script


def check_may_write(path: Path, force: bool = False) -> None:
    """Raise UsageError, in one line, for a file that is read-only or, unless `force`, not in git as it stands."""
    try:
        check_not_read_only(path)
    except PermissionError as error:
        raise UsageError(f"{path} is not written: {error.strerror}") from None
    if force:
        return
    git = shutil.which("git")
    if git is None:
        raise UsageError(f"{path} is not written: without git nothing keeps the old version (--force writes it)")
    folder = path.resolve().parent

    def asked(*words: str) -> int:
        command = [git, "-C", str(folder), *words, "--", path.resolve().name]
        return subprocess.run(command, check=False, capture_output=True).returncode

    if asked("ls-files", "--error-unmatch"):
        raise UsageError(f"{path} is not written: it is not under version control (--force writes it)")
    if asked("diff", "--quiet", "HEAD"):
        raise UsageError(f"{path} is not written: it differs from HEAD; commit it first (--force writes it)")


def may_write(path: Path) -> bool:
    """Whether git keeps the old version of a file as it stands, so that it is written without `--force`."""
    try:
        check_may_write(path)
    except UsageError:
        return False
    return True


def write_all(files: Mapping[Path, bytes], before: Mapping[Path, bytes]) -> None:
    """Put new data in the place of files that hold `before`, each in one move, with its permissions: all or none.

    A file of several names is written in place, so that all of them go on to mean it.

    Raises UsageError, in one line, if one has changed since it was read or cannot be written; then all are as before.
    """
    for path in files:
        if _held(path) != before[path]:
            raise UsageError(f"{path} is not written: it has changed since")
    written: list[Path] = []
    path = Path()
    with ExitStack() as stack:
        try:
            staged = {}
            for path, data in files.items():
                staged[path] = stack.enter_context(Staged(path))
                staged[path].file.write(data)
                staged[path].sync()  # before the first is moved: the disk has room for all
            for path, data in files.items():
                written.append(path)
                if path.stat().st_nlink > 1:
                    path.write_bytes(data)
                else:
                    staged[path].commit()
        except OSError as error:
            for other in written:
                if _held(other) != before[other]:
                    other.write_bytes(before[other])
            raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def _held(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def patch_folder(files: Iterable[Path], root: Path) -> Path:
    """The current folder if all files lie below it, else `root`, which holds all files of the program.

    git looks for the files of a patch below the folder that it runs in, and rejects names that lead out of it.
    """
    here = Path.cwd().resolve()
    return here if all(file.resolve().is_relative_to(here) for file in files) else root


def file_patch(old: Script, new: Script, folder: Path) -> str:
    """A file's part of a patch for `folder`."""
    name = new.path.resolve().relative_to(folder).as_posix()
    lines = difflib.unified_diff(_lines(old.text), _lines(new.text), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def how_to_apply(folder: Path) -> str:
    """How the user applies a patch for `folder`."""
    if folder == Path.cwd().resolve():
        return "save the patch for git apply"
    return (
        f"save the patch, for example as fix.patch, for git -C {shlex.quote(os.path.relpath(folder))} apply < fix.patch"
    )


def _lines(text: str) -> list[str]:
    """The lines that git knows: str.splitlines would end one at a form feed, too."""
    return list(io.StringIO(text, newline="\n"))
