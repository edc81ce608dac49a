"""Changed versions of a program's files, which Python runs instead of those on disk, in each of its processes."""

from __future__ import annotations

import errno
import io
import linecache
import os
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any


def serve_sources(changed: Mapping[str, str]) -> None:
    """Have this process run, for a file of the program by its path without links, the text of another file.

    `__file__`, lines and what shows them are those of the program's file. Nothing is undone.
    """
    if not changed:
        return
    texts = {path: Path(text).read_bytes() for path, text in changed.items()}
    names = {os.path.basename(path) for path in texts}

    def text_of(path: str) -> bytes | None:
        return texts.get(os.path.realpath(path)) if os.path.basename(path) in names else None

    # What imports modules, and what runs the script once more in a worker (runpy), opens code by this function.
    _replace_open_code(io, text_of)
    import _io

    _replace_open_code(_io, text_of)
    path_stats = SourceFileLoader.path_stats

    def stats_of_unchanged(self: SourceFileLoader, path: str) -> Mapping[str, Any]:
        if text_of(path) is not None:  # no compiled file is looked for then, and none is written
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return path_stats(self, path)

    vars_of_loader: Any = SourceFileLoader
    vars_of_loader.path_stats = stats_of_unchanged
    for path, text in texts.items():
        with io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
        linecache.cache[path] = (len(text), None, lines, path)


def _replace_open_code(module: Any, text_of: Callable[[str], bytes | None]) -> None:
    original = module.open_code

    def open_code(path: str) -> Any:
        text = text_of(path)
        return original(path) if text is None else io.BytesIO(text)

    module.open_code = open_code
