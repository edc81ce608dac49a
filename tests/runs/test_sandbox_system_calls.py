"""The filter of a plan's sandbox: each call by its number, run here on a small machine as the kernel runs it."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anymps.runs.sandbox import _system_calls as calls
from anymps.runs.sandbox._system_calls import CALLS, Operand, by_number, install_filter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="system calls of Linux")

TABLE = {call.name: call.numbers for call in CALLS}
HEADERS = {0: "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 1: "/usr/include/asm-generic/unistd.h"}
ARCHITECTURES = {0: 0xC000003E, 1: 0xC00000B7}
IO_URING_SETUP, LATEST = 425, 470
ALLOW, ASK, UNKNOWN = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.ENOSYS


def answer(which: int, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter returns for a call: the program's few instructions, of linux/bpf_common.h."""
    data = struct.pack(
        "=iIQ6Q", number, architecture or ARCHITECTURES[which], 0, *arguments, *[0] * (6 - len(arguments))
    )
    program = [struct.unpack("=HBBI", step) for step in calls._program(which, ARCHITECTURES[which])]
    loaded = place = 0
    while True:
        code, yes, no, value = program[place]
        place += 1
        if code == 0x06:  # return
            return int(value)
        if code == 0x20:  # load a word
            (loaded,) = struct.unpack_from("=I", data, value)
            continue
        tests: dict[int, Callable[[int, int], bool]] = {
            0x15: lambda a, b: a == b,
            0x35: lambda a, b: a >= b,
            0x45: lambda a, b: bool(a & b),
        }
        place += yes if tests[code](loaded, value) else no


OPERANDS = """
chmod 0            fchmod f0            fchmodat 1@0         fchmodat2 1@0~3      chown 0
fchown f0          lchown 0!            fchownat 1@0~4       utime 0              utimes 0
futimesat 1@0      utimensat 1@0~3      setxattr 0           lsetxattr 0!         fsetxattr f0
setxattrat 1@0~2   removexattr 0        lremovexattr 0!      fremovexattr f0      removexattrat 1@0~2
file_setattr 1@0~4 truncate 0           ioctl f0             open 0               creat 0
openat 1@0         openat2 1@0          mknod 0!             mknodat 1@0!         unlink 0!
unlinkat 1@0!      rename 0!,1!         renameat 1@0!,3@2!   renameat2 1@0!,3@2!  link 0!,1!
linkat 1@0~4!,3@2!
"""
"""Of each call the places of its paths (`1`), descriptors (`f0`), folders (`@0`) and flags (`~3`), from the pages of
section 2 of the manual; `!` where the last link is not followed."""


def shown(operand: Operand) -> str:
    if operand.file is not None:
        return f"f{operand.file}"
    folder = "" if operand.folder is None else f"@{operand.folder}"
    flags = "" if operand.flags is None else f"~{operand.flags}"
    return f"{operand.path}{folder}{flags}{'' if operand.follow else '!'}"


def test_the_operands() -> None:
    """Every call's files are where the kernel looks for them; those from `open` on make, rename or remove names."""
    words = OPERANDS.split()
    assert {call.name: ",".join(map(shown, call.operands)) for call in CALLS} == dict(
        zip(words[::2], words[1::2], strict=True)
    )
    names = [call.name for call in CALLS]
    assert [call.name for call in CALLS if call.names] == names[names.index("open") :]


@pytest.mark.parametrize("which", [0, 1], ids=["x86-64", "aarch64"])
def test_the_headers_have_the_same_numbers(which: int) -> None:
    """Of the calls that this machine's headers know."""
    header = Path(HEADERS[which])
    if not header.exists():
        pytest.skip(f"there is no {header}")
    text = header.read_text()
    found = {name: int(number) for name, number in re.findall(r"define __NR3?2?6?4?_?(\w+)\s+(\d+)", text)}
    known = {name: pair[which] for name, pair in TABLE.items() if pair[which] is not None and name in found}
    assert len(known) >= 20
    assert known == {name: found[name] for name in known}


@pytest.mark.parametrize("which", [0, 1], ids=["x86-64", "aarch64"])
def test_the_filter(which: int) -> None:
    """Calls that change files are asked about, opening only to write; io_uring and foreign calls are not there."""
    numbers = {name: pair[which] for name, pair in TABLE.items() if pair[which] is not None}
    asked = set(numbers.values()) - {numbers.get("open"), numbers["openat"], numbers["ioctl"]}
    for number in range(LATEST):
        expected = ASK if number in asked else UNKNOWN if number == IO_URING_SETUP else ALLOW
        assert answer(which, number) == expected, number
    writing = (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC)
    for name, place in (("open", 1), ("openat", 2)):
        number = numbers.get(name)
        if number is not None:
            assert [answer(which, number, *[0] * place, flags) for flags in (0, os.O_CLOEXEC, *writing)] == [
                *(ALLOW, ALLOW),
                *[ASK] * 4,
            ]
            assert answer(which, number, *[os.O_RDWR] * place, os.O_RDONLY) == ALLOW  # by its flags alone
    ioctls = (0x40086602, 0x40046602, 0x401C5820)
    assert [answer(which, numbers["ioctl"], 3, request) for request in (*ioctls, 0x5401)] == [ASK, ASK, ASK, ALLOW]
    assert answer(which, 0, architecture=ARCHITECTURES[1 - which]) == UNKNOWN
    first_of_x32 = 0x40000000
    assert answer(which, first_of_x32) == (UNKNOWN if which == 0 else ALLOW)
    assert answer(which, first_of_x32 - 1) == ALLOW


@pytest.mark.parametrize(("machine", "which"), [("x86_64", 0), ("aarch64", 1), ("riscv64", None)])
def test_the_calls_of_a_machine(monkeypatch: pytest.MonkeyPatch, machine: str, which: int | None) -> None:
    """By number; none of a processor that is not known, and none of another system."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    expected = {pair[which]: name for name, pair in TABLE.items() if pair[which]} if which is not None else {}
    assert {number: call.name for number, call in by_number().items()} == expected
    monkeypatch.setattr(sys, "platform", "darwin")
    assert by_number() == {}


class Kernel:
    """In place of the C library: notes the call, and copies the filter that it is given."""

    def __init__(self, result: int) -> None:
        self.result = result
        self.given: list[object] = []

    def syscall(self, number: int, operation: int, flags: ctypes.c_uint, head: bytes) -> int:
        length, address = struct.unpack("@HP", head)
        self.given = [number, operation, flags.value, ctypes.string_at(address, 8 * length)]
        ctypes.set_errno(errno.EBUSY)
        return self.result


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """On an x86-64: it takes the filter, and nothing of this process changes."""
    made = Kernel(7)
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: made)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return made


def test_the_filter_is_installed(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a listener, whose descriptor comes back; what the kernel refuses is its own error."""
    assert install_filter() == 7
    assert kernel.given == [317, 1, 8, b"".join(calls._program(0, ARCHITECTURES[0]))]
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert install_filter() == 7
    assert kernel.given == [277, 1, 8, b"".join(calls._program(1, ARCHITECTURES[1]))]
    kernel.result = -1
    with pytest.raises(OSError, match="busy") as caught:
        install_filter()
    assert caught.value.errno == errno.EBUSY


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (platform, "machine", lambda: "riscv64"),
        (sys, "byteorder", "big"),
        (sys, "maxsize", (1 << 32) - 1),
        (sys, "platform", "darwin"),
    ],
)
def test_machines_without_the_filter(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: object
) -> None:
    """Another processor, the other byte order, 32 bits, another system: nothing is asked of the kernel."""
    monkeypatch.setattr(module, name, value)
    with pytest.raises(OSError, match="not implemented") as caught:
        install_filter()
    assert (caught.value.errno, kernel.given) == (errno.ENOSYS, [])
