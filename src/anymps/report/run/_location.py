"""Where a finding is, as other programs want it: a path below a root, or a whole one."""

from __future__ import annotations

import ntpath
import posixpath
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from urllib.parse import quote


def below(file: str, root: str) -> str | None:
    """The file's path below `root`, with forward slashes; None if it lies elsewhere.

    Paths are compared as they are written, with `..` taken out; no file is asked for.
    """
    whole = _pure(file)
    if not root or not whole.is_absolute():
        # A path that is not absolute is one from the directory of the run.
        return None if whole.is_absolute() or ".." in whole.parts else whole.as_posix()
    above = _pure(root)
    return whole.relative_to(above).as_posix() if whole.is_relative_to(above) else None


def uri(path: str) -> str:
    """A path below a root as a relative URI."""
    return quote(path.encode("utf-8", "surrogateescape"), safe="/~")


def file_uri(path: str) -> str:
    """An absolute path as a `file:` URI; of a relative one, which leads to no certain place, the name alone."""
    whole = _pure(path)
    if not whole.is_absolute():
        return uri(whole.name if ".." in whole.parts else whole.as_posix())
    text = whole.as_posix()
    return f"file://{'' if text.startswith('/') else '/'}{quote(text.encode('utf-8', 'surrogateescape'), safe='/~:')}"


def _pure(path: str) -> PurePath:
    """The path by the rules of the system that the recording comes from."""
    windows = PureWindowsPath(path)
    if windows.drive:
        return PureWindowsPath(ntpath.normpath(path))
    return PurePosixPath(posixpath.normpath(path))
