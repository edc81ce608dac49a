"""What a new process does first: nothing, until it imports torch; then it has the device and is recorded.

It also runs changed versions of a program's files in place of those on disk.
"""

from __future__ import annotations

import errno
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import io
import linecache
import os
import pkgutil
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from anymps._text import tell
from anymps.children._parts import CHILDREN_VARIABLE, ChildSettings

_TORCHS_OWN: Final = f"{os.sep}torch{os.sep}_inductor{os.sep}"
"""Processes in which torch compiles kernels. They compute nothing for the program."""

_FORKSERVER: Final = "from multiprocessing.forkserver import main"

_waiting: _TorchFinder | None = None
_leave: Callable[[], None] | None = None
_aside = False


def begin() -> None:
    """Have torch switch the device on and start to record when it is imported. `anymps_children.pth` calls this.

    It does so in a process whose environment names a folder for parts (`ANYMPS_CHILDREN`). Where the folder is gone,
    the run that would have read them is over, and the process is left alone.
    """
    global _waiting
    folder = os.environ.get(CHILDREN_VARIABLE)
    if not folder or _waiting is not None or "torch" in sys.modules:
        return
    settings = ChildSettings.read(folder) or ChildSettings()
    if settings.prepare is not None:
        function, text = settings.prepare
        pkgutil.resolve_name(function)(text)
    serve_sources(settings.sources)
    if not settings.device:
        return
    _waiting = _TorchFinder(folder)
    sys.meta_path.insert(0, _waiting)


def stand_aside() -> None:
    """Undo the preparation of this process: it switches the device on and records as its own command line says."""
    global _aside
    _aside = True
    if _waiting is not None and _waiting in sys.meta_path:
        sys.meta_path.remove(_waiting)
    if _leave is not None:
        _leave()


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as it would be found without us, and acts right after it has been imported."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = os.getpid()
        self._looking = False
        self._late = False  # torch is there, but we have not acted yet

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Watch the import of torch, and of nothing else. Whoever only asks for torch need not import it."""
        if self._late and not _is_ours():
            self._act()
        if name != "torch" or self._looking or self._late:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            # Keep the real loader: torch's files are read through it later.
            loader: Any = spec.loader
            original = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                original(module)
                if self not in sys.meta_path:
                    return
                if _is_ours():
                    self._late = True
                    _record_when_enabled(self._folder, self._forked)
                else:
                    self._act()

            loader.exec_module = exec_module
        return spec

    @property
    def _forked(self) -> bool:
        return os.getpid() != self._process

    def _act(self) -> None:
        sys.meta_path.remove(self)
        if not self._late:
            _record_when_enabled(self._folder, self._forked)
        _switch_on(self._folder)


def _settings(folder: str) -> ChildSettings | None:
    if _TORCHS_OWN in (sys.argv[0] if sys.argv else ""):
        return None
    return ChildSettings.read(folder)


def _record_when_enabled(folder: str, forked: bool) -> None:
    settings = _settings(folder)
    if settings is not None:
        from anymps.device import call_when_enabled

        call_when_enabled(functools.partial(_record, folder, settings, forked))


def _switch_on(folder: str) -> None:
    settings = _settings(folder)
    if settings is None:
        return
    from anymps._errors import AnympsError
    from anymps.device import enable, state

    try:
        if state() is None:
            enable(settings.mac, quiet=True)
    except AnympsError as error:
        tell(error)


def _is_ours() -> bool:
    """Whether code of anymps is running: parts of it may be half imported, and `enable` may be on its way."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if (name == "anymps" or name.startswith("anymps.")) and name != __name__:
            return True
        frame = frame.f_back
    return False


def _record(folder: str, settings: ChildSettings, forked: bool) -> None:
    global _leave
    if _leave is not None or _aside:  # a process forked by one that is recorded, or one that is on its own
        return
    if not forked and any(_FORKSERVER in word for word in sys.orig_argv):
        # It has loaded the script for those that it forks, and runs nothing of it.
        os.register_at_fork(after_in_child=functools.partial(_record, folder, settings, True))
        return
    from anymps._errors import AnympsError
    from anymps.children._record import record_here

    try:
        _leave = record_here(folder, settings)
    except AnympsError as error:
        tell(error)


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
