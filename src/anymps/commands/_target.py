"""Run a script or module in this process as `python` would: arguments, import path, `__main__`, status, traceback."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Final

from anymps import capture
from anymps._errors import UsageError
from anymps._text import tell
from anymps.capture import INTERRUPTED, ending_of

_POOLS: Final = {"concurrent.futures.process": "_global_shutdown", "concurrent.futures.thread": "_shutdown"}
"""What says in each module of pools that Python ends."""

_HEAD: Final = 1 << 16  # bytes of a script that are looked at before it runs


class TargetError(UsageError):
    """What was to run cannot be run, or could not be run to an end of its own."""


class TargetNotFoundError(TargetError):
    """There is no such script or module."""


@dataclass(frozen=True)
class Target:
    """A script's path or, with ``is_module``, a module's dotted name; and the arguments for it."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @classmethod
    def named(cls, module: str | None, words: tuple[str, ...], command: str) -> Target:
        """What a command's arguments name: a module given with -m, or a script. Raises UsageError if neither."""
        if module is not None:
            return cls(module, words, is_module=True)
        if words:
            return cls(words[0], words[1:])
        raise UsageError(f"name a script, or a module with -m (anymps {command} --help)")

    @classmethod
    def of(cls, words: Sequence[str]) -> Target:
        """The one that has these `words`."""
        is_module = words[0] == "-m"
        name, *arguments = words[is_module:]
        return cls(name, tuple(arguments), is_module)

    @property
    def words(self) -> list[str]:
        """What python's command line says to run it."""
        return [*(["-m"] if self.is_module else []), self.name, *self.arguments]

    @property
    def place(self) -> Path:
        """Where the project's settings are looked for: at the script, or for a module where we are."""
        return Path.cwd() if self.is_module else Path(self.name)

    @property
    def file(self) -> Path:
        """The file that holds its code. Raises TargetNotFoundError for a module that has none; runs nothing of it."""
        if not self.is_module:
            return Path(self.name)
        spec = _located(self.name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _located(f"{self.name}.__main__")
        if spec is None or spec.origin is None:
            raise TargetNotFoundError(f"there is no file of a module named {self.name!r}")
        return Path(os.path.relpath(spec.origin))

    def check(self) -> None:
        """Raise TargetNotFoundError if the target cannot be there, or is no text.

        Runs nothing of it, not even a parent package.
        """
        if self.is_module:
            top = self.name.partition(".")[0]
            if not top or (top not in sys.modules and (_find_spec(top) or _located(top)) is None):
                raise TargetNotFoundError(f"there is no module named {top!r}")
        elif os.path.isdir(self.name):
            raise TargetNotFoundError(f"{self.name} is a directory: name a script in it, or a package with -m")
        elif not os.path.exists(self.name):
            raise TargetNotFoundError(f"there is no script {self.name}")
        elif not os.access(self.name, os.R_OK):
            raise TargetNotFoundError(f"the script {self.name} cannot be read: no permission")
        elif _is_binary(self.name):
            raise TargetNotFoundError(f"{self.name} is not a Python script: it holds null bytes")

    def set_import_path(self) -> None:
        """Replace our own entry at the head of `sys.path` by the script's directory, or for a module the current one.

        Under `python -P` or PYTHONSAFEPATH (Python 3.11) there is neither the one nor the other.
        """
        if getattr(sys.flags, "safe_path", False):
            return
        # A script's links are followed (Python's `_PyPathConfig_ComputeSysPath0`).
        first = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.name))
        sys.path[:1] = [first]

    def execute(self) -> None:
        """Run the code as `__main__`; whatever it raises passes through.

        Raises TargetNotFoundError if a module's parent package has no such submodule.
        """
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        if sys.version_info < (3, 14):  # later, a module makes them when it is asked for them (PEP 649)
            main.__annotations__ = {}
        if self.is_module:
            spec, code = self._module_code()
            main.__dict__.update(
                __file__=spec.origin,
                __cached__=spec.cached,
                __loader__=spec.loader,
                __package__=spec.parent,
                __spec__=spec,
            )
            sys.argv = [str(spec.origin), *self.arguments]
            _become_main(main)
        else:
            path = os.path.abspath(self.name)
            # As python: no spec, no package, the absolute path (Python 3.9), the path as given in argv.
            main.__dict__.update(
                __file__=path,
                __cached__=None,
                __loader__=importlib.machinery.SourceFileLoader("__main__", path),
                __package__=None,
                __spec__=None,
            )
            sys.argv = [self.name, *self.arguments]
            _become_main(main)
            with io.open_code(path) as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)

    def _module_code(self) -> tuple[ModuleSpec, types.CodeType]:
        """Find a module, or the `__main__` of a package, importing the packages above it."""
        sys.argv = ["-m", *self.arguments]  # what a parent package sees while it is imported
        spec = _find_spec(self.name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{self.name}.__main__"
            spec = _find_spec(name)
            if spec is None:
                raise TargetNotFoundError(f"{self.name} is a package without __main__ and cannot be run")
        get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        code = get_code(spec.name) if spec is not None and get_code is not None else None
        if spec is None or code is None:
            raise TargetNotFoundError(f"there is no module named {self.name!r}")
        return spec, code


def _become_main(module: types.ModuleType) -> None:
    """Make a module the program's own, also by the name that processes started by `spawn` know it by."""
    sys.modules["__main__"] = module
    if "__mp_main__" in sys.modules:  # multiprocessing, which torch imports, has taken us for the program
        sys.modules["__mp_main__"] = module


def _is_binary(name: str) -> bool:
    """Whether a file begins as no text does, such as a checkpoint. A pipe is not read: the run needs what is in it."""
    if not os.path.isfile(name):
        return False
    with open(name, "rb") as file:
        return b"\0" in file.read(_HEAD)


def _located(name: str) -> ModuleSpec | None:
    """Where a module is, as seen from the current folder: `python -m` looks there first."""
    folders: Sequence[str] | None = sys.path if getattr(sys.flags, "safe_path", False) else [os.getcwd(), *sys.path]
    found: ModuleSpec | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        found = None if folders is None else PathFinder.find_spec(".".join(parts[:depth]), folders)
        if found is None:
            return None
        folders = found.submodule_search_locations
    return found


def _find_spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A parent that is no package, or is missing. A missing import inside a parent is the parent's own mistake.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise
    except ValueError:  # `__spec__` of a module in sys.modules is None
        return None


def execute(code: Callable[[], None]) -> tuple[int, dict[str, object]]:
    """Run code of the user's to its end, threads included, and return its exit status and how it ended.

    An exception is shown as python shows it (through `sys.excepthook`), without frames of anymps. How it ended is
    ``{"status": int}``; of one that was not caught what `ending_of` says.
    Raises TargetError.
    """
    try:
        try:
            code()
        finally:
            # Python waits for them before it ends; what they do belongs to the run.
            _join_threads()
    except TargetError:
        raise
    except SystemExit as error:
        status = _exit_status(error)
        return status, {"status": status}
    except BaseException as error:
        _show(error)
        return (INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1), ending_of(error)
    return 0, {"status": 0}


def _join_threads() -> None:
    # As `threading._shutdown`: pools that nobody shut down are told to end before their threads are waited for.
    for name, flag in _POOLS.items():
        module: Any = sys.modules.get(name)
        if hasattr(module, "_python_exit"):
            module._python_exit()
            setattr(module, flag, False)  # this process may make other pools
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _exit_status(error: SystemExit) -> int:
    """What `sys.exit(...)` means: nothing is 0, a number is itself, anything else is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code)
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    with suppress(Exception):  # its text is the script's own code; Python ends with 1 all the same
        # Of Python's own stream where the script has none: `print` takes None for standard output.
        print(error.code, file=sys.stderr if sys.stderr is not None else sys.__stderr__, flush=True)
    return 1


def _show(error: BaseException) -> None:
    """Print an exception that the script did not catch, as the interpreter would."""
    error.__traceback__ = _without_watchers(_without_own_frames(error.__traceback__))
    kind, trace = type(error), error.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    vars(sys)["last_exc"] = error  # what debuggers look for from Python 3.12 on
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # the script closed it
            sys.stdout.flush()
    try:
        sys.excepthook(kind, error, trace)
    except BaseException as failure:
        tell("Error in sys.excepthook:")
        traceback.print_exception(type(failure), failure, _without_own_frames(failure.__traceback__))
        tell("\nOriginal exception was:")
        traceback.print_exception(kind, error, trace)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def _without_own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Drop the frames above the script's own: those of anymps and of the import system.

    If no frame of the script is left, drop only those of this file: the others show a bug in anymps.
    """
    here = _without_own_frames.__code__.co_filename
    package = os.path.dirname(os.path.dirname(here)) + os.sep
    return _trace_below(trace, package) or _trace_below(trace, here)


def _without_watchers(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Drop the frames of a recording that stands between the script and torch."""
    watchers = os.path.dirname(capture.__file__) + os.sep
    kept: list[types.TracebackType] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(watchers):
            kept.append(trace)
        trace = trace.tb_next
    for entry, following in zip(kept, [*kept[1:], None], strict=False):
        entry.tb_next = following
    return kept[0] if kept else None


def _trace_below(trace: types.TracebackType | None, own: str) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((own, "<frozen importlib")):
        trace = trace.tb_next
    return trace
