"""Redirects Python's file functions to the layer: a planned script writes nothing outside of it."""

from __future__ import annotations

import builtins
import errno
import functools
import inspect
import io
import os
import shutil
import stat
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from anymps.runs.sandbox._layer import REAL, Layer

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READERS = ("stat", "lstat", "access", "readlink", "statvfs", "getxattr", "listxattr")
_CHANGERS = (
    *("truncate", "chmod", "lchmod", "chown", "lchown", "chflags", "lchflags", "utime", "setxattr", "removexattr"),
)
_OF_OPEN_FILES = {"fchmod": "chmod", "fchown": "chown"}
_MAKERS = ("mkfifo", "mknod")
_OF_LINKS = ("lstat", "readlink", "lchmod", "lchown", "lchflags")


def divert_files(layer: Layer) -> None:
    """Put functions that ask `layer` in the place of those of `builtins`, `io` and `os`. Nothing is undone."""
    stand_ins: dict[Any, Any] = {REAL.open: _open(layer), REAL.FileIO: _file_io(layer), REAL.os_open: _os_open(layer)}
    for name in _READERS:
        if real := getattr(REAL, f"os_{name}", None):
            stand_ins[real] = _reader(layer, real, name not in _OF_LINKS)
    for name in (*_CHANGERS, *_MAKERS):
        if real := getattr(REAL, f"os_{name}", None):
            stand_ins[real] = _changer(layer, real, name not in _OF_LINKS, makes=name in _MAKERS)
    for name, other in _OF_OPEN_FILES.items():
        if hasattr(REAL, f"os_{name}"):
            real = getattr(REAL, f"os_{name}")
            stand_ins[real] = _of_open_file(layer, real, stand_ins[getattr(REAL, f"os_{other}")])
    stand_ins |= _folders(layer) | _names(layer)
    for real, stand_in in stand_ins.items():
        for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if real in known:
                known.add(stand_in)
    _replace(stand_ins)
    builtins.open = io.open
    # By descriptors of directories it would pass by the layer.
    vars(shutil)["_use_fd_functions"] = False


def _renamed_error(error: OSError, path: Any, other: Any = None) -> OSError:
    """The error under the name that the script gave."""
    error.filename = path
    if other is not None:
        error.filename2 = other
    return error


# --- opening


def _open(layer: Layer) -> Callable[..., Any]:
    @functools.wraps(REAL.open)
    def diverted(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        opener = kwargs.get("opener", args[5] if len(args) > 5 else None)
        if isinstance(file, int) or not isinstance(mode, str) or opener is not None:
            return REAL.open(file, mode, *args, **kwargs)
        where = _place(layer, file, mode)
        try:
            handle = REAL.open(where, mode, *args, **kwargs)
        except OSError as error:
            raise _renamed_error(error, file) from None
        if where is not file:
            raw = getattr(getattr(handle, "buffer", handle), "raw", handle)
            with suppress(AttributeError):
                raw.name = file
        return handle

    return diverted


def _place(layer: Layer, file: Any, mode: str) -> Any:
    """Where a file is to be opened in a mode of `open`."""
    if any(letter in mode for letter in "wax+"):
        return layer.writable(file, keep="w" not in mode, exclusive="x" in mode)
    return _readable(layer, file, True)


def _readable(layer: Layer, path: Any, follow: bool, folder: int | None = None) -> Any:
    """Where what lies under a path is to be read: the path itself as long as all is as on disk."""
    key = layer.key(path, follow, folder) if layer.touched else None
    return path if key is None else layer.at(key)


def _file_io(layer: Layer) -> type:
    class Kind(type):
        """Files that `open` made are of the class, too."""

        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, real)

    real: Any = REAL.FileIO

    class FileIO(real, metaclass=Kind):  # type: ignore[misc]
        """`io.FileIO` on the layer."""

        def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
            where = file if isinstance(file, int) or opener is not None else _place(layer, file, mode)
            super().__init__(where, mode, closefd, opener)
            self.name = file

    return FileIO


def _os_open(layer: Layer) -> Callable[..., Any]:
    @functools.wraps(REAL.os_open)
    def diverted(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
        if flags & _WRITING:
            keep, exclusive = not flags & os.O_TRUNC, bool(flags & os.O_EXCL)
            where = layer.writable(path, keep=keep, exclusive=exclusive, folder=dir_fd)
        else:
            where = _readable(layer, path, not flags & getattr(os, "O_NOFOLLOW", 0), dir_fd)
        try:
            return REAL.os_open(where, flags, mode, **({"dir_fd": dir_fd} if where is path and dir_fd else {}))
        except OSError as error:
            raise _renamed_error(error, path) from None

    return diverted


# --- one path


def _reader(layer: Layer, real: Callable[..., Any], follow: bool) -> Callable[..., Any]:
    @functools.wraps(real)
    def diverted(path: Any, *args: Any, **kwargs: Any) -> Any:
        where = _readable(layer, path, follow and kwargs.get("follow_symlinks", True), kwargs.get("dir_fd"))
        if where is path:
            return real(path, *args, **kwargs)
        try:
            return real(where, *args, **{**kwargs, **({"dir_fd": None} if "dir_fd" in kwargs else {})})
        except OSError as error:
            raise _renamed_error(error, path) from None

    return diverted


def _changer(layer: Layer, real: Callable[..., Any], follow: bool, makes: bool) -> Callable[..., Any]:
    @functools.wraps(real)
    def diverted(path: Any, *args: Any, **kwargs: Any) -> Any:
        folder = kwargs.pop("dir_fd", None)
        if isinstance(path, int):
            path = layer.named(path) or path
        key = layer.key(path, not makes and follow and kwargs.get("follow_symlinks", True), folder)
        if key is None:
            return real(path, *args, **kwargs, **({"dir_fd": folder} if folder is not None else {}))
        try:
            if not makes:
                REAL.os_lstat(layer.at(key))
            elif os.path.lexists(layer.at(key)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            result = real(layer.claim(key), *args, **kwargs)
        except OSError as error:
            raise _renamed_error(error, path) from None
        layer.note(key)
        return result

    return diverted


def _of_open_file(layer: Layer, real: Callable[..., Any], of_path: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def diverted(fd: int, *args: Any) -> Any:
        name = layer.named(fd)
        return real(fd, *args) if name is None else of_path(name, *args)

    return diverted


# --- two paths, and directories


def _names(layer: Layer) -> dict[Any, Any]:
    @functools.wraps(REAL.os_symlink)
    def symlink(src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
        key = layer.key(dst, False, dir_fd)
        if key is None:
            REAL.os_symlink(src, dst, target_is_directory, dir_fd=dir_fd)
            return
        if os.path.lexists(layer.at(key)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
        try:
            REAL.os_symlink(src, layer.claim(key), target_is_directory)
        except OSError as error:
            raise _renamed_error(error, src, dst) from None
        layer.note(key)

    @functools.wraps(REAL.os_link)
    def link(src: Any, dst: Any, **kwargs: Any) -> None:
        if os.path.lexists(dst):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
        shutil.copy2(src, dst, follow_symlinks=kwargs.get("follow_symlinks", True))

    renamers = {
        real: functools.wraps(real)(functools.partial(layer.rename)) for real in (REAL.os_rename, REAL.os_replace)
    }
    removers = {
        real: functools.wraps(real)(functools.partial(layer.remove)) for real in (REAL.os_remove, REAL.os_unlink)
    }
    return {REAL.os_symlink: symlink, REAL.os_link: link, **renamers, **removers}


def _folders(layer: Layer) -> dict[Any, Any]:
    @functools.wraps(REAL.os_listdir)
    def listdir(path: Any = None) -> list[Any]:
        key = _mixed(layer, path)
        if key is None:
            return REAL.os_listdir(path)  # type: ignore[no-any-return]
        names = _entries(layer, key, path)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    @functools.wraps(REAL.os_scandir)
    def scandir(path: Any = None) -> Any:
        key = _mixed(layer, path)
        return REAL.os_scandir(path) if key is None else _Scan(path, _entries(layer, key, path))

    @functools.wraps(REAL.os_chdir)
    def chdir(path: Any) -> None:
        key = layer.key(path) if layer.touched else None
        try:
            REAL.os_chdir(path if key is None else layer.folder_at(key))
        except OSError as error:
            raise _renamed_error(error, path) from None

    @functools.wraps(REAL.os_getcwd)
    def getcwd() -> str:
        return layer.getcwd()

    @functools.wraps(REAL.os_getcwdb)
    def getcwdb() -> bytes:
        return os.fsencode(layer.getcwd())

    return {
        REAL.os_listdir: listdir,
        REAL.os_chdir: chdir,
        REAL.os_scandir: scandir,
        REAL.os_getcwd: getcwd,
        REAL.os_getcwdb: getcwdb,
        REAL.os_mkdir: functools.wraps(REAL.os_mkdir)(functools.partial(layer.mkdir)),
        REAL.os_rmdir: functools.wraps(REAL.os_rmdir)(functools.partial(layer.rmdir)),
    }


def _mixed(layer: Layer, path: Any) -> str | None:
    """The key of a directory that is not as on disk."""
    if not layer.touched:
        return None
    key = layer.key("." if path is None else path)
    return key if key is not None and layer.is_mixed(key) else None


def _entries(layer: Layer, key: str, path: Any) -> list[str]:
    try:
        return layer.names(key)
    except OSError as error:
        raise _renamed_error(error, path) from None


class _Scan:
    """What `os.scandir` gives."""

    def __init__(self, path: Any, names: list[str]) -> None:
        self._entries = (_Entry("." if path is None else path, name) for name in names)

    def __iter__(self) -> Iterator[_Entry]:
        return self

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Nothing is open."""


class _Entry:
    """An `os.DirEntry`."""

    def __init__(self, folder: Any, name: str) -> None:
        self.name: Any = os.fsencode(name) if isinstance(folder, bytes) else name
        self.path: Any = os.path.join(os.fspath(folder), self.name)

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As `os.stat`."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        """As `os.lstat`."""
        return os.lstat(self.path).st_ino

    def _is(self, test: Callable[[int], bool], follow: bool) -> bool:
        try:
            return test(self.stat(follow_symlinks=follow).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """Whether it is a link."""
        return self._is(stat.S_ISLNK, False)

    def is_junction(self) -> bool:
        """There are none."""
        return False


# --- who holds the functions


def _replace(stand_ins: dict[Any, Any]) -> None:
    """Put each stand-in wherever a loaded module keeps the function: under a name, in a class, as a default."""
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and not module.__name__.startswith("anymps."):
            _replace_in(module, stand_ins, module.__name__)


def _replace_in(owner: Any, stand_ins: dict[Any, Any], module: str) -> None:
    for name, value in list(vars(owner).items()):
        plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        other = _other(plain, stand_ins)
        if other is not None:
            kept = staticmethod(other) if isinstance(owner, type) else other
            with suppress(AttributeError, TypeError):
                setattr(owner, name, kept)
        elif inspect.isfunction(plain) and plain.__defaults__:
            plain.__defaults__ = tuple(_other(one, stand_ins) or one for one in plain.__defaults__)
        elif inspect.isclass(value) and value.__module__ == module and not isinstance(owner, type):
            _replace_in(value, stand_ins, module)


def _other(value: Any, stand_ins: dict[Any, Any]) -> Any:
    try:
        return stand_ins.get(value)
    except TypeError:  # it has no hash
        return None
