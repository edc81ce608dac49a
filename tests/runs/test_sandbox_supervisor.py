"""Which file a system call is about, and whether it may be: the supervisor of a plan's sandbox, in this process."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anymps.runs.inside._isolation import end_with_parent
from anymps.runs.sandbox import SHARED, _supervisor
from anymps.runs.sandbox._supervisor import Supervisor, _place
from anymps.runs.sandbox._system_calls import EMPTY_PATH, FOLLOW, NO_FOLLOW, Operand

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc of Linux")

WITH_FLAGS = Operand(path=1, folder=0, flags=2)
CURRENT = (1 << 32) - 100  # AT_FDCWD as a register has it


def place(operand: Operand, *arguments: int | str) -> str:
    """The place of a call of this process; a text is handed over by its address."""
    texts = [ctypes.create_string_buffer(one.encode()) if isinstance(one, str) else one for one in arguments]
    given = [one if isinstance(one, int) else ctypes.addressof(one) for one in texts]
    return _place(os.getpid(), operand, given)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without links in its name: `file`, `link` to it, and a folder `other`."""
    folder = tmp_path.resolve()
    (folder / "file").write_text("text")
    (folder / "link").symlink_to("file")
    (folder / "other").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def opened(files: Path) -> Iterator[int]:
    """The folder `other`, open."""
    number = os.open(files / "other", os.O_RDONLY)
    yield number
    os.close(number)


def test_a_tag_in_the_highest_byte_is_no_part_of_an_address(files: Path) -> None:
    """As aarch64 leaves it to programs."""
    text = ctypes.create_string_buffer(b"file")
    address = ctypes.addressof(text)
    for tag in (0, 1 << 56, 255 << 56):
        assert _place(os.getpid(), Operand(path=0), [address | tag]) == f"{files}/file"


def test_links(files: Path) -> None:
    """Followed as the call does it, unless its flags say otherwise."""
    link, file = f"{files}/link", f"{files}/file"
    assert place(Operand(path=0), "link") == file
    assert place(Operand(path=0, follow=False), "link") == link
    assert [place(WITH_FLAGS, CURRENT, "link", flags) for flags in (0, NO_FOLLOW, EMPTY_PATH)] == [file, link, file]
    not_followed = Operand(path=1, folder=0, flags=2, follow=False)
    assert [place(not_followed, CURRENT, "link", flags) for flags in (0, FOLLOW, FOLLOW | 1)] == [link, file, file]


def test_descriptors(files: Path, opened: int) -> None:
    """By number, or by an empty path; what has no name any more, or never had one, has no place."""
    assert place(Operand(file=0), opened) == f"{files}/other"
    assert place(Operand(file=0), opened | 1 << 32) == f"{files}/other"  # the kernel takes an int
    assert place(WITH_FLAGS, opened, "", EMPTY_PATH) == f"{files}/other"
    assert place(WITH_FLAGS, opened, 0, 0) == f"{files}/other"
    read, write = os.pipe()
    gone = os.open("file", os.O_RDONLY)
    os.unlink("file")
    assert [place(Operand(file=0), number) for number in (read, gone)] == ["", ""]
    for number in (read, write, gone):
        os.close(number)
    with pytest.raises(FileNotFoundError):
        place(Operand(file=0), gone)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """One whose process may change files below `tmp_path`."""
    made = Supervisor()
    made._free = (f"{tmp_path.resolve()}/",)
    yield made
    made.stop()


def test_what_may_be_changed(supervisor: Supervisor, files: Path) -> None:
    """Modes, owners and times: in the plan's own folders, of terminals, of what has no name; of nothing else."""
    may = supervisor._may_touch
    assert [may(name) for name in ("", f"{files}/file", "/dev/pts/3")] == [True, True, True]
    assert [may(name) for name in ("/etc/passwd", str(files), "/dev/null", f"{SHARED}/theirs")] == [False] * 4


def test_what_may_be_named(supervisor: Supervisor, files: Path) -> None:
    """Landlock keeps files on disk. What is left are devices, pipes, sockets and links there, and shared memory."""
    may = supervisor._may_name
    assert may("/etc/passwd")  # Landlock's
    assert [may(name) for name in ("/proc/123/comm", "/proc/sys/vm/swappiness")] == [True, False]
    assert [may(name) for name in ("/dev/null", f"{SHARED}/not there")] == [True, True]
    assert not may("/dev/pts")


def test_kinds_of_files_in_shared_memory(supervisor: Supervisor, files: Path) -> None:
    """A file or a folder that was there before is kept; pipes, sockets and links hold nothing."""
    supervisor._shared = f"{files}/"
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket")
    names = ("file", "other", "pipe", "socket", "link", "new")
    assert [supervisor._may_name(f"{files}/{name}") for name in names] == [False, False, True, True, True, True]
    assert stat.S_ISSOCK(os.lstat("socket").st_mode)


def test_the_forms_of_the_kernel() -> None:
    """Sizes of its structures, by which the requests of `ioctl` are named."""
    for request, form in ((_supervisor._RECEIVE, _supervisor._NOTIFICATION), (_supervisor._SEND, _supervisor._ANSWER)):
        assert request >> 16 & 0x3FFF == form.size
        assert request >> 30 == 3  # reads and writes
        assert request >> 8 & 0xFF == ord("!")
    assert (_supervisor._RECEIVE & 0xFF, _supervisor._SEND & 0xFF) == (0, 1)


def test_an_interrupt_stops_it_in_the_background_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell has its background jobs ignore interrupts, and so would all that they start."""
    monkeypatch.delenv("ANYMPS_LIFELINE", raising=False)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        end_with_parent()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
