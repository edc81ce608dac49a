"""The system calls that a sealed process must ask about, by number and operands, and the filter that makes it ask.

Landlock knows rights to content and names. It has none for modes, owners, times and attributes
(https://docs.kernel.org/userspace-api/landlock.html, "Filesystem actions"), and none for a single name in a directory.
A seccomp filter sees the numbers of a call, and no path; so it hands the call over to a supervisor, which can read
the path (https://docs.kernel.org/userspace-api/seccomp_filter.html, "Userspace Notification").
Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.17.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from dataclasses import dataclass
from typing import Final

NO_FOLLOW: Final = 0x100  # AT_SYMLINK_NOFOLLOW
FOLLOW: Final = 0x400  # AT_SYMLINK_FOLLOW, of linkat alone
EMPTY_PATH: Final = 0x1000  # AT_EMPTY_PATH

_OPENS_TO_WRITE: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Operand:
    """The file that a call is about: numbers are places of its arguments.

    With `file` an open descriptor, else a path, which begins in the directory `folder` if it is relative. Where
    `flags` is given, its bits say whether the last link is followed.
    """

    path: int | None = None
    folder: int | None = None
    flags: int | None = None
    follow: bool = True
    file: int | None = None


@dataclass(frozen=True)
class Syscall:
    """A call that changes what is known of a file, or makes, opens to write, renames (`names`) or removes one."""

    name: str
    numbers: tuple[int | None, int | None]
    operands: tuple[Operand, ...]
    names: bool = False


_AT = Operand(path=1, folder=0)
_AT_LINK = Operand(path=1, folder=0, follow=False)
_PATH, _LINK, _FILE = Operand(path=0), Operand(path=0, follow=False), Operand(file=0)

CALLS: Final = (
    # name, its number on x86-64 and on aarch64, its files
    Syscall("chmod", (90, None), (_PATH,)),
    Syscall("fchmod", (91, 52), (_FILE,)),
    Syscall("fchmodat", (268, 53), (_AT,)),
    Syscall("fchmodat2", (452, 452), (Operand(path=1, folder=0, flags=3),)),
    Syscall("chown", (92, None), (_PATH,)),
    Syscall("fchown", (93, 55), (_FILE,)),
    Syscall("lchown", (94, None), (_LINK,)),
    Syscall("fchownat", (260, 54), (Operand(path=1, folder=0, flags=4),)),
    Syscall("utime", (132, None), (_PATH,)),
    Syscall("utimes", (235, None), (_PATH,)),
    Syscall("futimesat", (261, None), (_AT,)),
    Syscall("utimensat", (280, 88), (Operand(path=1, folder=0, flags=3),)),
    Syscall("setxattr", (188, 5), (_PATH,)),
    Syscall("lsetxattr", (189, 6), (_LINK,)),
    Syscall("fsetxattr", (190, 7), (_FILE,)),
    Syscall("setxattrat", (463, 463), (Operand(path=1, folder=0, flags=2),)),
    Syscall("removexattr", (197, 14), (_PATH,)),
    Syscall("lremovexattr", (198, 15), (_LINK,)),
    Syscall("fremovexattr", (199, 16), (_FILE,)),
    Syscall("removexattrat", (466, 466), (Operand(path=1, folder=0, flags=2),)),
    Syscall("file_setattr", (469, 469), (Operand(path=1, folder=0, flags=4),)),
    Syscall("truncate", (76, 45), (_PATH,)),  # Landlock has it from version 3 on
    Syscall("ioctl", (16, 29), (_FILE,)),  # with one of _IOCTLS
    Syscall("open", (2, None), (_PATH,), names=True),
    Syscall("creat", (85, None), (_PATH,), names=True),
    Syscall("openat", (257, 56), (_AT,), names=True),
    Syscall("openat2", (437, 437), (_AT,), names=True),
    Syscall("mknod", (133, None), (_LINK,), names=True),
    Syscall("mknodat", (259, 33), (_AT_LINK,), names=True),
    Syscall("unlink", (87, None), (_LINK,), names=True),
    Syscall("unlinkat", (263, 35), (_AT_LINK,), names=True),
    Syscall("rename", (82, None), (_LINK, Operand(path=1, follow=False)), names=True),
    Syscall("renameat", (264, 38), (_AT_LINK, Operand(path=3, folder=2, follow=False)), names=True),
    Syscall("renameat2", (316, 276), (_AT_LINK, Operand(path=3, folder=2, follow=False)), names=True),
    Syscall("link", (86, None), (_LINK, Operand(path=1, follow=False)), names=True),
    Syscall("linkat", (265, 37), (Operand(1, 0, 4, follow=False), Operand(path=3, folder=2, follow=False)), names=True),
)

_OPEN_FLAGS: Final = {"open": 1, "openat": 2}  # place of the flags
_IOCTLS: Final = (
    0x40086602,  # FS_IOC_SETFLAGS (include/uapi/linux/fs.h), as chattr does
    0x40046602,  # FS_IOC32_SETFLAGS
    0x401C5820,  # FS_IOC_FSSETXATTR
)
_URING: Final = (425, 425)  # io_uring_setup: its operations pass by every filter

_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # AUDIT_ARCH_*, linux/audit.h
_SECCOMP: Final = (317, 277)
_X32: Final = 0x40000000  # __X32_SYSCALL_BIT

_ALLOW, _ERRNO, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000  # SECCOMP_RET_*
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|J*|K, BPF_RET|K
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # places in seccomp_data
_SET_FILTER, _NEW_LISTENER = 1, 8


def by_number() -> dict[int, Syscall]:
    """The calls of this machine by number; none for a system or a processor that is not known."""
    known = _ARCHITECTURES.get(platform.machine()) if sys.platform == "linux" else None
    if known is None:
        return {}
    return {number: call for call in CALLS if (number := call.numbers[known[0]]) is not None}


def install_filter() -> int:
    """Make this thread and all that it starts ask about `CALLS`, and return the descriptor on which they ask.

    It cannot be undone. Raises OSError where the system has no such filters, or another one listens already.
    """
    known = _ARCHITECTURES.get(platform.machine()) if sys.platform == "linux" else None
    if known is None or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    which, architecture = known
    program = b"".join(_program(which, architecture))
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)
    listener = library.syscall(_SECCOMP[which], _SET_FILTER, ctypes.c_uint(_NEW_LISTENER), head)
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(listener)


def _program(which: int, architecture: int) -> list[bytes]:
    """Instructions of the filter: (code, jump if true, jump if false, value), linux/filter.h."""

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    unknown = step(_RETURN, _ERRNO | errno.ENOSYS)
    ask, allow = step(_RETURN, _NOTIFY), step(_RETURN, _ALLOW)
    steps = [step(_LOAD, _ARCHITECTURE), step(_EQUAL, architecture, 1), unknown, step(_LOAD, _NUMBER)]
    if which == 0:
        steps += [step(_AT_LEAST, _X32, 0, 1), unknown]
    steps += [step(_EQUAL, _URING[which], 0, 1), unknown]
    for call in CALLS:
        number = call.numbers[which]
        if number is None:
            continue
        if call.name in _OPEN_FLAGS:
            place = _ARGUMENTS + 8 * _OPEN_FLAGS[call.name]
            body = [step(_LOAD, place), step(_ANY_BIT, _OPENS_TO_WRITE, 0, 1), ask, allow]
        elif call.name == "ioctl":
            body = [step(_LOAD, _ARGUMENTS + 8)]
            body += [piece for value in _IOCTLS for piece in (step(_EQUAL, value, 0, 1), ask)]
            body.append(allow)
        else:
            body = [ask]
        steps += [step(_EQUAL, number, 0, len(body)), *body]
    return [*steps, allow]
