"""The supervisor of a sealed process: it answers the system calls that the process must ask about.

It is a thread of the process that started the sealed one. Even with Yama, Linux lets an ancestor read the memory of its
descendants, and no lock of the sealed Python can block it. An allowed call continues, so its result is the kernel's
own. Any other fails as a write that Landlock refuses: "Permission denied".
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import select
import socket
import stat
import struct
import sys
import threading
from contextlib import suppress
from typing import Any, Final

from anymps.runs.sandbox._system_calls import EMPTY_PATH, FOLLOW, NO_FOLLOW, Operand, by_number, install_filter

CHANNEL: Final = "ANYMPS_SUPERVISOR"
"""Variable with the number of the socket on which a sealed process finds its supervisor."""

SHARED: Final = "/dev/shm"
"""The folder of shared memory and of semaphores, which C libraries and no functions of Python make."""

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND, linux/seccomp.h
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")  # seccomp_notif
_ANSWER: Final = struct.Struct("=QqiI")  # seccomp_notif_resp
_GO_ON: Final = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_LONGEST_PATH: Final = 4096
_ADDRESS: Final = (1 << 56) - 1  # the highest byte may hold a tag on aarch64
_CURRENT_FOLDER: Final = -100  # AT_FDCWD
_PATIENCE: Final = 5.0  # seconds for a file system that does not answer
_PROBE: Final = b"anymps sealed"
_OWN_FILES: Final = re.compile(r"^/dev/(?:fd(?=/)|std(?:in|out|err)$)|^/proc/(?:self|thread-self)(?=/|$)")
_STANDARD: Final = {"/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2", "/dev/fd": "fd"}
_OF_A_PROCESS: Final = re.compile(r"/proc/\d+/")


class Supervisor:
    """Starts to listen at once; `channel` is for the process that is to be sealed. None where there are no filters."""

    _made_by_all: Final[set[str]] = set()  # two measurements may share a name

    def __init__(self) -> None:
        self._calls = by_number()
        self._made: set[str] = set()  # what sealed processes left in SHARED
        self._free: tuple[str, ...] = ()
        self._shared = f"{os.path.realpath(SHARED)}/"
        self.channel: int | None = None
        if not self._calls:
            return
        self._socket, self._other = socket.socketpair()
        self._stop_reader, self._stop_writer = os.pipe()
        self.channel = self._other.fileno()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="anymps supervisor")
        self._thread.start()

    def handed_over(self) -> None:
        """The process has been started and has its end of the channel."""
        if self.channel is not None:
            self._other.close()

    def stop(self) -> None:
        """No sealed process is left: what they left in shared memory is removed."""
        if self.channel is None:
            return
        self.handed_over()
        os.close(self._stop_writer)
        self._thread.join(_PATIENCE)
        os.close(self._stop_reader)
        self._socket.close()
        self.channel = None
        for path in self._made:
            with suppress(OSError):
                os.unlink(path)
        self._made_by_all.difference_update(self._made)

    # --- the thread

    def _serve(self) -> None:
        with suppress(OSError, ValueError):
            listener = self._introduced()
            if listener is None:
                return
            try:
                while self._is_ready(listener):
                    self._answer_one(listener)
            finally:
                os.close(listener)

    def _introduced(self) -> int | None:
        """The listener of the process that introduces itself; None if it does not, or cannot be supervised."""
        if not self._is_ready(self._socket.fileno()):
            return None
        order = json.loads(self._socket.recv(1 << 16) or b"{}")
        if not order:
            return None
        self._free = tuple(f"{folder.rstrip('/')}/" for folder in order["folders"])
        able = False
        with suppress(OSError):
            able = _read(order["process"], order["address"], len(_PROBE)) == _PROBE
        self._socket.send(b"y" if able else b"n")
        if not able or not self._is_ready(self._socket.fileno()):
            return None
        _, files, _, _ = socket.recv_fds(self._socket, 1, 1)
        return files[0] if files else None

    def _is_ready(self, descriptor: int) -> bool:
        """Wait for something to read; False if we are to stop, or nobody is left who could ask."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._stop_reader, select.POLLIN)
        events = dict(poll.poll())
        return self._stop_reader not in events and bool(events.get(descriptor, 0) & select.POLLIN)

    def _answer_one(self, listener: int) -> None:
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # whoever asked is gone
                return
            raise
        number, task, _, call, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        try:
            goes_on = self._may(task, call, arguments)
        except FileNotFoundError:
            goes_on = True  # it fails by itself
        except (OSError, ValueError):
            goes_on = False
        answer = _ANSWER.pack(number, 0, 0 if goes_on else -errno.EACCES, _GO_ON if goes_on else 0)
        with suppress(OSError):  # whoever asked is gone
            fcntl.ioctl(listener, _SEND, answer)

    # --- what may be done

    def _may(self, task: int, number: int, arguments: list[int]) -> bool:
        call = self._calls[number]
        if not call.names:
            return all(self._may_touch(_place(task, operand, arguments)) for operand in call.operands)
        places = [_place(task, operand, arguments) for operand in call.operands]
        if not all(map(self._may_name, places)):
            return False
        self._remember(call.name, places)
        return True

    def _may_touch(self, place: str) -> bool:
        """Whether mode, owner, times and attributes may be changed."""
        return not place or place.startswith((*self._free, "/dev/pts/")) or place in self._made_by_all

    def _may_name(self, place: str) -> bool:
        """Whether a file may be made, opened to write or removed, as far as Landlock leaves it open."""
        if place.startswith("/proc/"):
            return _OF_A_PROCESS.match(place) is not None
        if not place.startswith(("/dev/", self._shared)) or place in self._made_by_all:
            return True
        try:
            kind = os.lstat(place).st_mode
        except FileNotFoundError:
            return True
        return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or stat.S_ISLNK(kind)

    def _remember(self, name: str, places: list[str]) -> None:
        """What is in shared memory after the call."""
        place = places[-1]
        if not place.startswith(self._shared):
            return
        if name.startswith(("rename", "unlink")):
            self._made.discard(places[0])
            self._made_by_all.discard(places[0])
        if not name.startswith("unlink"):
            self._made.add(place)
            self._made_by_all.add(place)


def _place(task: int, operand: Operand, arguments: list[int]) -> str:
    """The true name of the file that an operand names; empty for what has none, as a pipe."""
    flags = arguments[operand.flags] if operand.flags is not None else 0
    address = arguments[operand.path] & _ADDRESS if operand.path is not None else 0
    text = os.fsdecode(_read(task, address, _LONGEST_PATH).partition(b"\0")[0]) if address else ""
    if operand.file is not None or not address or (not text and flags & EMPTY_PATH):
        return _of_file(task, arguments[operand.file if operand.file is not None else operand.folder or 0])
    if not text:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    follow = bool(flags & FOLLOW) or (operand.follow and not flags & NO_FOLLOW)
    text = _OWN_FILES.sub(lambda match: f"/proc/{task}/{_STANDARD.get(match[0], '')}".rstrip("/"), text, count=1)
    if not text.startswith("/"):
        folder = _signed(arguments[operand.folder]) if operand.folder is not None else _CURRENT_FOLDER
        text = f"/proc/{task}/{'cwd' if folder == _CURRENT_FOLDER else f'fd/{folder}'}/{text}"
    try:
        return _true_name(text, follow)
    except FileNotFoundError:
        above, _, name = text.rstrip("/").rpartition("/")
        return f"{_true_name(above or '/', True).rstrip('/')}/{name}"


def _of_file(task: int, descriptor: int) -> str:
    path = f"/proc/{task}/fd/{_signed(descriptor)}"
    known = os.stat(path)
    name = os.readlink(path) if known.st_nlink else ""  # else it is deleted, or was never a name
    return name if name.startswith("/") else ""  # "pipe:[123]"


def _true_name(path: str, follow: bool) -> str:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def _read(task: int, address: int, size: int) -> bytes:
    """Memory of a task, up to the end of what it has there. Raises OSError if it may not be read."""
    memory = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, size, address)
    finally:
        os.close(memory)


def _signed(number: int) -> int:
    """A descriptor, which the kernel takes as an int."""
    return ctypes.c_int(number & 0xFFFFFFFF).value


def ask_supervisor(folders: tuple[str, ...]) -> bool:
    """Give this process a supervisor who lets it change files below `folders` alone; whether there is one.

    What was asked of it cannot be undone.
    """
    given = os.environ.pop(CHANNEL, None)
    if given is None or sys.platform != "linux":
        return False
    probe: Any = ctypes.create_string_buffer(_PROBE)
    order = {"process": os.getpid(), "address": ctypes.addressof(probe), "folders": folders}
    with socket.socket(fileno=int(given)) as channel, suppress(OSError):
        channel.send(json.dumps(order).encode())
        if channel.recv(1) != b"y":
            return False
        listener = install_filter()
        try:
            socket.send_fds(channel, [b"y"], [listener])
        finally:
            os.close(listener)
        return True
    return False
