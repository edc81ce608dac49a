"""The changes of a program as a patch for `git apply`, and the folder to apply it in."""

from __future__ import annotations

import difflib
import io
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from anymps.fix._script import Script


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
    """What a person does with a patch for `folder`."""
    if folder == Path.cwd().resolve():
        return "save the patch for git apply"
    return (
        f"save the patch, for example as fix.patch, for git -C {shlex.quote(os.path.relpath(folder))} apply < fix.patch"
    )


def _lines(text: str) -> list[str]:
    """The lines that git knows: str.splitlines would end one at a form feed, too."""
    return list(io.StringIO(text, newline="\n"))
