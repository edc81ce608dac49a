"""Restores Python as it was before a script ran, for what anymps does afterwards, and then the script's changes."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from anymps._own_imports import own_imports
from anymps.cleanup import ENDING_SIGNALS

_USED: Final = frozenset(
    (
        *("base64", "builtins", "codecs", "collections", "collections.abc", "contextlib", "copy", "dataclasses"),
        *("datetime", "enum", "errno", "functools", "genericpath", "gzip", "hashlib", "heapq", "html"),
        *("importlib", "importlib.resources", "importlib.util", "inspect", "io", "itertools", "json"),
        *("json.decoder", "json.encoder", "json.scanner", "keyword", "linecache", "locale", "math", "operator"),
        *("os", "pathlib", "platform", "posix", "posixpath", "random", "re", "reprlib", "select", "shlex"),
        *("shutil", "signal", "socket", "sqlite3", "sqlite3.dbapi2", "stat", "statistics", "string", "struct"),
        *("subprocess", "sys", "tempfile", "textwrap", "threading", "time", "tokenize", "traceback", "types"),
        *("typing", "unicodedata", "urllib.parse", "warnings", "weakref", "zlib"),
    )
)
"""Modules of the standard library that a report calls, by itself or through rich and jinja2."""

_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE
_ABSENT: Final = object()
_DEPTH: Final = 1000  # calls below the current one: Python's default
_TIMERS: Final = ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
_OF_THE_PROGRAM: Final = frozenset(("__main__", "__mp_main__"))
_OURS: Final = frozenset((signal.SIGINT, *ENDING_SIGNALS))
_STREAMS: Final = {"stdout": 1, "stderr": 2}

_Change = tuple[Any, str, Any, Any]


class OwnPython:
    """Takes down, before a script runs, what is there: modules, functions of Python, variables, streams, handlers."""

    def __init__(self) -> None:
        self._modules = {name: module for name, module in sys.modules.items() if name not in _OF_THE_PROGRAM}
        self._namespaces = list(_namespaces(self._modules))
        self._variables = dict(os.environ)
        self._folder = _current_folder()
        self._watchers = (sys.gettrace(), sys.getprofile())
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._streams: dict[str, TextIO | None] = {name: getattr(sys, name) for name in _STREAMS}
        self._copies = {name: _copy(number) for name, number in _STREAMS.items()}

    def close(self) -> None:
        """Give the copies of the streams back."""
        for descriptor in filter(None, self._copies.values()):
            with suppress(OSError):
                os.close(descriptor)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Work, within this, in Python as it was. What the script changed is in its place again afterwards.

        Its timers stay off, and what it took out of `sys.modules` and `os.environ` is back. Left alone: what is no
        function, such as a setting; files, limits and rights of the process; its threads, for which the current folder
        is the first one meanwhile.
        """
        handlers = self._quieten()
        changed = self._put_back()
        limit, watchers = sys.getrecursionlimit(), (sys.gettrace(), sys.getprofile())
        sys.settrace(self._watchers[0])
        sys.setprofile(self._watchers[1])
        sys.setrecursionlimit(max(limit, _depth() + _DEPTH))
        lost = {name: module for name, module in self._modules.items() if sys.modules.get(name) is not module}
        replaced = {name: sys.modules[name] for name in lost if name in sys.modules}
        sys.modules.update(lost)
        os.environ.update({name: text for name, text in self._variables.items() if name not in os.environ})
        folder = _current_folder()
        with suppress(OSError):
            os.chdir(self._folder)  # where the paths of our options begin
        streams = {name: (own, getattr(sys, name)) for name, own in self._own_streams().items()}
        for name, (own, _) in streams.items():
            setattr(sys, name, own)
        try:
            with own_imports(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            for name, (own, theirs) in streams.items():
                with suppress(OSError, ValueError, AttributeError):
                    getattr(sys, name).flush()
                if getattr(sys, name) is own:  # else it has been put back for good
                    setattr(sys, name, theirs)
            with suppress(OSError):
                os.chdir(folder)
            sys.modules.update(replaced)
            for number, handler in handlers.items():
                with suppress(ValueError, TypeError):
                    signal.signal(number, handler)
            _give_back(changed)
            with suppress(RecursionError):
                sys.setrecursionlimit(limit)
            sys.settrace(watchers[0])
            sys.setprofile(watchers[1])

    def _put_back(self) -> list[_Change]:
        """Put functions back that were replaced: their owners, names, what they are, and what the script put there."""
        changed = [
            (owner, name, ours, theirs)
            for owner, known in self._namespaces
            for name, ours in known.items()
            if (theirs := vars(owner).get(name, _ABSENT)) is not ours
        ]
        for owner, name, ours, _ in changed:
            with suppress(AttributeError, TypeError):
                setattr(owner, name, ours)
        return changed

    def _quieten(self) -> dict[int, Any]:
        """Keep the script's handlers of signals from running; what they are. Its timers are ended."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        for name in _TIMERS:
            if hasattr(signal, name):
                signal.setitimer(getattr(signal, name), 0)
        theirs: dict[int, Any] = {}
        for number, ours in self._handlers.items():
            handler = signal.getsignal(number)
            if handler is not ours and callable(handler):
                theirs[number] = handler
                signal.signal(number, ours if number in _OURS else signal.SIG_IGN)
        return theirs

    def _own_streams(self) -> dict[str, TextIO | None]:
        """The standard streams as they were; new ones to the same places for those that have been closed."""
        usable = {name: _is_usable(stream) for name, stream in self._streams.items()}
        return {name: self._streams[name] if usable[name] else self._reopened(name) for name in _STREAMS}

    def _reopened(self, name: str) -> TextIO | None:
        with suppress(OSError, TypeError):
            copy: Any = self._copies[name]
            return open(copy, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        return self._streams[name]


def _is_usable(stream: TextIO | None) -> bool:
    if stream is None:
        return True
    try:
        os.fstat(stream.fileno())
    except (io.UnsupportedOperation, AttributeError):
        return True  # one of a test or a notebook
    except (OSError, ValueError):
        return False
    return True


def _namespaces(modules: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The modules that a report uses, and their classes, each with its functions."""
    for name in _USED.intersection(modules):
        module = modules[name]
        functions = {key: value for key, value in vars(module).items() if isinstance(value, _FUNCTIONS)}
        yield module, functions
        for value in functions.values():
            if isinstance(value, type) and value.__module__ == name:
                flags = value.__flags__
                if flags & _HEAP_TYPE and not flags & _IMMUTABLE:
                    yield value, {key: one for key, one in vars(value).items() if callable(one) or _is_bound(one)}


def _is_bound(value: object) -> bool:
    return isinstance(value, (staticmethod, classmethod, property))


def _give_back(changed: list[_Change]) -> None:
    for owner, name, ours, theirs in reversed(changed):
        if vars(owner).get(name, _ABSENT) is not ours:
            continue  # closing a recording has put it back for good
        with suppress(AttributeError, TypeError):
            if theirs is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, theirs)


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return os.curdir


def _copy(descriptor: int) -> int | None:
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth
