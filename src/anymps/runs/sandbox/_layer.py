"""A private folder over the file system: a script's files are written there, and read back from there.

A path has a key, its absolute name without links. A key is looked up in the layer first, at the same path below its
folder, then among the renamed files, and last on disk, unless the file was deleted.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import stat
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

REAL: Final = SimpleNamespace(open=io.open, FileIO=io.FileIO)
"""The functions of `io` and `os` as Python made them: `os_stat` is `os.stat`."""

_MOST_LINKS = 40  # as Linux has it

for _name in (
    *("access", "chdir", "chflags", "chmod", "chown", "fchmod", "fchown", "getcwd", "getcwdb", "getxattr", "lchflags"),
    *("lchmod", "lchown", "link", "listdir", "listxattr"),
    *("lstat", "mkdir", "mkfifo", "mknod", "open", "readlink", "remove", "removexattr", "rename", "replace", "rmdir"),
    *("scandir", "setxattr", "stat", "statvfs", "symlink", "truncate", "unlink", "utime"),
):
    if hasattr(os, _name):
        setattr(REAL, f"os_{_name}", getattr(os, _name))


class Layer:
    """The layer in `folder`; paths below `free` are left alone, but not those of them that are below `within`."""

    def __init__(self, folder: str, free: tuple[str, ...] = (), within: tuple[str, ...] = ()) -> None:
        self._folder = os.path.realpath(folder)
        self._free = _roots((folder, *free))
        self._within = _roots(within)
        self._gone: set[str] = set()  # keys whose files on disk are deleted, with all below them
        self._moved: dict[str, str] = {}  # keys of renamed files that nobody has written, and where they lie on disk
        self._lock = threading.RLock()
        self.touched = False
        """Whether anything differs from the disk."""
        self.written: dict[str, None] = {}
        """Files written, renamed to or made, by key, in their order."""
        self.removed: dict[str, None] = {}
        """Files on disk that were deleted or renamed, by key."""

    # --- names

    def key(self, path: Any, follow: bool = True, folder: int | None = None) -> str | None:
        """The key of a path, its last link followed or not; None for what the layer leaves alone.

        `folder` is the open directory that a relative path begins in. Raises OSError for links that lead in circles.
        """
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if not text or "\0" in text:
            return None
        if not text.startswith("/"):
            text = f"{self.getcwd() if folder is None else self.shown(_path_of(folder))}/{text}"
        key = self._resolved(text, follow)
        return None if self._is_free(key) else key

    def _is_free(self, key: str) -> bool:
        place = f"{key}/"
        return place.startswith(self._free) and not place.startswith(self._within)

    def _resolved(self, text: str, follow: bool) -> str:
        done = ""
        links = 0
        left = _parts(text)
        while left:
            part = left.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}"
            if left or follow:
                where = self.at(here)
                if stat.S_ISLNK(_kind(where, follow=False)):
                    links += 1
                    if links > _MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), text)
                    target = REAL.os_readlink(where)
                    done = "" if target.startswith("/") else done
                    left += _parts(target)
                    continue
            done = here
        return done or "/"

    def named(self, descriptor: int) -> str | None:
        """The name of an open file that is on disk; None for what the layer holds or leaves alone, and for pipes."""
        try:
            name = _path_of(descriptor) if REAL.os_stat(descriptor).st_nlink else ""
        except OSError:
            return None
        return name if name.startswith("/") and self.key(name) is not None else None

    def shown(self, path: str) -> str:
        """The name that the script knows for a path inside the layer."""
        return path[len(self._folder) :] or "/" if f"{path}/".startswith(f"{self._folder}/") else path

    def getcwd(self) -> str:
        """The current directory under the script's name for it."""
        return self.shown(REAL.os_getcwd())

    # --- reading

    def at(self, key: str) -> str:
        """Where the file of a key lies; a path without a file where there is none."""
        own = self._folder + key
        if not self.touched or self._is_free(key):
            return key
        if _exists(own):
            return own
        return self._moved.get(key) or (own if self._hidden(key) else key)

    def folder_at(self, key: str) -> str:
        """The directory of a key to be in: that on disk where there is one, as relative paths begin there."""
        return key if _is_dir(key) and not self._hidden(key) else self.at(key)

    def _hidden(self, key: str) -> bool:
        while len(key) > 1:
            if key in self._gone:
                return True
            key = _above(key)
        return False

    def is_mixed(self, key: str) -> bool:
        """Whether a directory's entries differ from those on disk."""
        return self.touched and (
            _exists(self._folder + key)
            or self._hidden(key)
            or any(_above(one) == key for one in (*self._gone, *self._moved))
        )

    def names(self, key: str) -> list[str]:
        """The entries of a directory. Raises OSError if there is none."""
        with self._lock:
            where, own = self.at(key), self._folder + key
            if not _is_dir(where):
                REAL.os_listdir(where)  # raises what it raises there
            found: dict[str, None] = {}
            if _is_dir(key) and not self._hidden(key):
                found |= dict.fromkeys(name for name in REAL.os_listdir(key) if _join(key, name) not in self._gone)
            found |= dict.fromkeys(REAL.os_listdir(own) if _exists(own) else ())
            return list(found | dict.fromkeys(os.path.basename(one) for one in self._moved if _above(one) == key))

    # --- writing

    def writable(self, path: Any, *, keep: bool, exclusive: bool = False, folder: int | None = None) -> Any:
        """The path to open in place of `path` so that writing to it is kept in the layer.

        `keep` says that what is in the file matters. Devices and pipes are what they are.
        """
        with self._lock:
            key = self.key(path, True, folder)
            if key is None:
                return path
            where = self.at(key)
            kind = _kind(where)
            if kind and (exclusive or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))):
                return where
            own = self.claim(key, keep)
            if not stat.S_ISDIR(kind):
                self.note(key)
            return own

    def claim(self, key: str, keep: bool = True) -> str:
        """The path in the layer for a key, with its parents, and with a copy of what there is if `keep`.

        Without a parent the path cannot be made either, and the caller's function fails as it would on disk.
        """
        own, where = self._folder + key, self.at(key)
        parent = _above(key)
        if not _is_dir(self.at(parent)):
            return _join(self.at(parent), os.path.basename(key))
        self._make(parent)
        if where != own:
            kind = _kind(where, follow=False)
            if stat.S_ISDIR(kind):
                self._make(key)
            elif stat.S_ISLNK(kind):
                REAL.os_symlink(REAL.os_readlink(where), own)
            elif kind and keep:
                with REAL.open(where, "rb") as source, REAL.open(own, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                REAL.os_chmod(own, stat.S_IMODE(kind) | stat.S_IWUSR)
        self.touched = True
        return own

    def _make(self, key: str) -> None:
        path = self._folder
        for part in filter(None, key.split("/")):
            path = f"{path}/{part}"
            with suppress(FileExistsError):
                REAL.os_mkdir(path)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """`os.mkdir` in the layer."""
        with self._lock:
            key = self.key(path, False, dir_fd)
            if key is None:
                REAL.os_mkdir(path, mode, dir_fd=dir_fd)
                return
            if _exists(self.at(key)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            REAL.os_mkdir(self.claim(key), mode)

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        """`os.remove` in the layer."""
        with self._lock:
            key = self.key(path, False, dir_fd)
            if key is None:
                REAL.os_remove(path, dir_fd=dir_fd)
                return
            kind = _kind(self.at(key), follow=False)
            if not kind:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if stat.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._forget(key)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        """`os.rmdir` in the layer."""
        with self._lock:
            key = self.key(path, False, dir_fd)
            if key is None:
                REAL.os_rmdir(path, dir_fd=dir_fd)
                return
            kind = _kind(self.at(key), follow=False)
            if not stat.S_ISDIR(kind):
                number = errno.ENOTDIR if kind else errno.ENOENT
                raise OSError(number, os.strerror(number), path)
            if self.names(key):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._forget(key)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        """`os.rename` and `os.replace` in the layer; what lies on disk is neither moved nor copied."""
        with self._lock:
            source, target = self.key(src, False, src_dir_fd), self.key(dst, False, dst_dir_fd)
            if source is None and target is None:
                REAL.os_rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
                return
            begin = self.at(source) if source is not None else os.path.abspath(os.fsdecode(src))
            kind = _kind(begin, follow=False)
            if not kind:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), src, None, dst)
            if target is None:
                shutil.copytree(src, dst) if stat.S_ISDIR(kind) else shutil.copy2(src, dst, follow_symlinks=False)
                if source is not None:
                    self._forget_tree(source)
                return
            if source == target:
                return
            there = _kind(self.at(target), follow=False)
            number = 0
            if stat.S_ISDIR(kind):
                if there and not stat.S_ISDIR(there):
                    number = errno.ENOTDIR
                elif there and self.names(target):
                    number = errno.ENOTEMPTY
                elif source is not None and target.startswith(f"{source}/"):
                    number = errno.EINVAL
            elif stat.S_ISDIR(there):
                number = errno.EISDIR
            elif not _is_dir(self.at(_above(target))):
                number = errno.ENOENT
            if number:
                raise OSError(number, os.strerror(number), src, None, dst)
            self._move(source, begin, target, kind)

    def _move(self, source: str | None, begin: str, target: str, kind: int) -> None:
        if _exists(self.at(target)):
            self._forget(target, told=False)
        own = self.claim(target, keep=False)
        self.note(target)
        if source is None or (begin.startswith(f"{self._folder}/") and not stat.S_ISDIR(kind)):
            REAL.os_rename(begin, own)
        elif stat.S_ISDIR(kind):
            REAL.os_mkdir(own)
            for name in self.names(source):
                child, wanted = _join(source, name), _join(target, name)
                where = self.at(child)
                self._move(child, where, wanted, _kind(where, follow=False))
        else:
            self._moved[target] = begin
        if source is not None:
            self._forget(source)

    def note(self, key: str) -> None:
        """A file was made or changed under a key."""
        self.touched = True
        self.written[key] = None
        self.removed.pop(key, None)

    def _forget(self, key: str, told: bool = True) -> None:
        """Delete what lies under a key; of a directory there is nothing left in it."""
        own = self._folder + key
        kind = _kind(own, follow=False)
        if kind:
            (REAL.os_rmdir if stat.S_ISDIR(kind) else REAL.os_remove)(own)
        self._moved.pop(key, None)
        if told:
            self.written.pop(key, None)
        if _exists(key) and not self._hidden(key):
            self._gone.add(key)
            if told:
                self.removed[key] = None
        self.touched = True

    def _forget_tree(self, key: str) -> None:
        if stat.S_ISDIR(_kind(self.at(key), follow=False)):
            for name in self.names(key):
                self._forget_tree(_join(key, name))
        self._forget(key)


def _roots(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(folder).rstrip('/')}/" for folder in folders)


def _parts(path: str) -> list[str]:
    """The parts of a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _kind(path: str, follow: bool = True) -> int:
    """The mode of a file; 0 where there is none."""
    try:
        return int((REAL.os_stat if follow else REAL.os_lstat)(path).st_mode)
    except OSError:
        return 0


def _exists(path: str) -> bool:
    return _kind(path, follow=False) != 0


def _is_dir(path: str) -> bool:
    return stat.S_ISDIR(_kind(path))


def _above(key: str) -> str:
    return key.rpartition("/")[0] or "/"


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def _path_of(descriptor: int) -> str:
    """The path of an open directory."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return str(REAL.os_readlink(f"/proc/self/fd/{descriptor}"))
