"""Write a file in one step: readers see the whole new file, or the old one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from anymps.cleanup import hold, remove_leftovers

_LONGEST = 50  # characters of the target's name in that of the new file: a name has 255 bytes at most
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Staged:
    """A new file beside `path`, to be written as `file`, that takes the place of `path` when it is committed.

    It keeps the permissions of what it replaces, and its owner and group as far as this user may give files away. A
    link stays one: what it leads to is replaced, unless `follow` is false. The name is new, so no other file is
    touched. As a context it is discarded at the end, unless it was committed.

    Raises OSError if the file cannot be made, PermissionError too for a file that may not be written though its folder
    may, and IsADirectoryError.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = True) -> None:
        self.target = Path(os.path.realpath(path) if follow else path)
        self._before = None if not follow and self.target.is_symlink() else _state(self.target)
        if self._before is not None:
            check_not_read_only(path)
        remove_leftovers(self.target.parent, _names_beside(self.target))
        self.path = unused_name(self.target)
        # No one else may read what replaces a private file, not even before its permissions are set.
        mode = 0o666 if self._before is None else 0o600
        self.file: BinaryIO = open(self.path, "w+b", opener=lambda path, _: os.open(path, _FLAGS, mode))  # noqa: SIM115
        self._there = True
        self._held = hold(self.path)

    def sync(self) -> None:
        """Wait until what was written is on the disk for good. Raises OSError."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def commit(self) -> None:
        """Put the new file in its place, when it is on the disk for good. Raises OSError."""
        self.sync()
        self.file.close()
        if self._before is not None:
            _take_over(self.path, self._before)
        os.replace(self.path, self.target)
        self._there = False
        self._held.close()
        _sync_folder(self.target.parent)

    def discard(self) -> None:
        """Take the new file away; nothing if it is in its place. Never raises OSError."""
        with contextlib.suppress(OSError):  # what could not be written cannot be flushed
            self.file.close()
        if self._there:
            self._there = False
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._held.close()

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.discard()


@contextlib.contextmanager
def staged_folder(path: Path) -> Iterator[Path]:
    """A new hidden folder beside `path`, for what takes its place; if it is still there at the end, it goes.

    Raises OSError.
    """
    remove_leftovers(path.parent, _names_beside(path))
    folder = unused_name(path)
    folder.mkdir()
    with hold(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which replaces `path` at the end of the block; after an error `path` is unchanged.

    `follow` is as in `Staged`. A file that is not regular (a pipe, `/dev/null`) is written in place. Raises OSError.
    """
    if _is_special(path):
        with open(path, "wb") as file:
            yield file
        return
    with Staged(path, follow=follow) as staged:
        yield staged.file
        staged.commit()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError, whose text says what to do, for a file that `replacing` could not write: before long work.

    It creates the new file and removes it: modes do not show a read-only disk, or the rights on another machine.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "it is a directory (name a file in it)", os.fspath(path))
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no directory {os.path.normpath(folder)}", os.fspath(path))
    if not _is_special(path):
        Staged(path).discard()


def replace_text(path: str | os.PathLike[str], pieces: Iterable[str], *, errors: str = "strict") -> None:
    """Write a text, or pieces of one, in UTF-8; `errors` is as in `str.encode`.

    Raises OSError, and UnicodeEncodeError for what is no text.
    """
    with replacing(path) as file:
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            file.write(piece.encode("utf-8", errors))


def check_not_read_only(path: str | os.PathLike[str]) -> None:
    """Raise PermissionError, whose text names the chmod to do, for a file that is there and may not be written.

    Its user made it read-only, and moving another file over it would work all the same. What a link means counts. The
    mode counts for the superuser, too, whom no mode stops.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # what writes it will say why
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, f"it is read-only (chmod u+w {os.fspath(path)})", os.fspath(path))


def move_into_place(made: Path, target: Path) -> None:
    """Put a finished file in the place of `target` on the same disk, as if written there. Raises OSError."""
    real = Path(os.path.realpath(target))
    before = _state(real)
    if before is not None:
        _take_over(made, before)
    os.replace(made, real)


def unused_name(path: Path) -> Path:
    """A hidden name beside `path` that nothing has."""
    return path.with_name(f".{path.name[:_LONGEST]}.{os.urandom(8).hex()}.new")


def _names_beside(path: Path) -> re.Pattern[str]:
    """All that `unused_name` may give for it."""
    return re.compile(rf"\.{re.escape(path.name[:_LONGEST])}\.[0-9a-f]{{16}}\.new")


def _state(path: Path) -> os.stat_result | None:
    """The state of what is to be replaced, None if there is nothing. Raises IsADirectoryError, and OSError."""
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return state


def _is_special(path: str | os.PathLike[str]) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _take_over(path: Path, before: os.stat_result) -> None:
    """Give a new file the group, the owner and the permissions of the one before."""
    mode = before.st_mode & 0o7777
    with contextlib.suppress(OSError):  # only members may give a file to a group
        os.chown(path, -1, before.st_gid)
    with contextlib.suppress(OSError):  # and only an administrator to another user
        os.chown(path, before.st_uid, -1)
    now = os.stat(path)
    if now.st_gid != before.st_gid:
        mode &= ~0o2070  # what one group was allowed must not be allowed to another
    if now.st_uid != before.st_uid:
        mode &= ~0o4000  # it must not run with the rights of whoever writes it now
    os.chmod(path, mode)


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk for good, where a system can do that with folders."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
