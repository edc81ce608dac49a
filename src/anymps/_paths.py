"""Whether a file belongs to the program or to a package, and a name for it that is the same on every machine."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

INSTALLED: Final = ("site-packages", "dist-packages")
"""Names of the folders that packages are installed in."""

_OWN_LIBRARY: Final = sysconfig.get_path("stdlib").replace("\\", "/") + "/"
_STANDARD_LIBRARY = re.compile(r".*/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)")
_TEMPORARY = re.compile(r".*/pytest-of-[^/]+/pytest-\d+/")  # pytest's `tmp_path`
_PATH = re.compile(r"(?<![\w./:])/[^\s'\"()\[\]<>:,;]+/[^\s'\"()\[\]<>:,;]+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def whole_path(path: str | os.PathLike[str]) -> Path:
    """An absolute path as people write it, without `..`: `/a/x.xml` for `/a/b/../x.xml`.

    Where `b` is a link to another folder, that names another file, and the dots stay.
    """
    whole = Path(path).absolute()
    short = Path(os.path.normpath(whole))
    return short if os.path.realpath(short) == os.path.realpath(whole) else whole


def is_library(file: str) -> bool:
    """Whether a file is an installed package's, or this Python's own as `unittest` is."""
    return bool(package_of(file)) or file.replace("\\", "/").startswith(_OWN_LIBRARY)


def package_of(file: str) -> str:
    """The folder or file of the installed package that a file belongs to, `timm`; empty for one of no package."""
    inside = _in_package(PurePath(file.replace("\\", "/")))
    return "" if inside is None else inside.parts[0].removesuffix(".py")


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
    at = max((number for number, part in enumerate(parts[:-1]) if part in INSTALLED), default=None)
    return None if at is None else PurePath(*parts[at + 1 :])
