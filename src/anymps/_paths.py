"""Files in words that are the same on every machine: as their project or their package knows them."""

from __future__ import annotations

__all__ = ["portable_path", "portable_text", "project_path"]

import re
from collections.abc import Sequence
from pathlib import PurePath

_INSTALLED = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = re.compile(r".*/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)")
_TEMPORARY = re.compile(r".*/pytest-of-[^/]+/pytest-\d+/")  # pytest's `tmp_path`
_PATH = re.compile(r"(?<![\w./:])/[^\s'\"()\[\]<>:,;]+/[^\s'\"()\[\]<>:,;]+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def project_path(file: str, roots: Sequence[str]) -> str:
    """A file from the first root above it, or from `site-packages`; as it is if it lies under none of them.

    An environment inside of a root is no part of the project.
    """
    whole = PurePath(file)
    for root in roots:
        if root and whole.is_relative_to(root):
            rest = whole.relative_to(root)
            return (_in_package(rest) or rest).as_posix()
    package = _in_package(whole)
    return file if package is None else package.as_posix()


def portable_text(text: str, root: str = "") -> str:
    """A text without what differs between machines: its files are `portable_path`s, an object's address is `0x...`."""
    return _ADDRESS.sub("0x...", _PATH.sub(lambda match: portable_path(match[0], root), text))


def portable_path(file: str, root: str = "") -> str:
    """A file from `root`, from its package, or from Python's own library; as it is if it lies elsewhere.

    `/opt/lib/python3.11/site-packages/gpytorch/kernels/kernel.py` is `gpytorch/kernels/kernel.py`.
    """
    path = project_path(file, (root,))
    if path == file:
        path = _TEMPORARY.sub(".../", _STANDARD_LIBRARY.sub("", path))
    return path


def _in_package(path: PurePath) -> PurePath | None:
    """The part of a path behind the folder that packages are installed in; None for a file that is not installed."""
    parts = path.parts
    at = max((number for number, part in enumerate(parts[:-1]) if part in _INSTALLED), default=None)
    return None if at is None else PurePath(*parts[at + 1 :])
