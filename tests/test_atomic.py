"""Files that are written in one step: what is kept of the old one, and that nothing else is touched."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import anymps
from anymps import _atomic
from anymps._atomic import Staged, check_writable, move_into_place, replace_text, replacing, unused_name

SOURCE = Path(anymps.__file__).parent
IN_STEPS_OF_THEIR_OWN = {
    "_atomic.py",
    "device/_build.py",  # a folder
    "metal/compilation/_headers.py",  # a folder
    "runs/sandbox/_layer.py",  # a script's own calls
    "runs/sandbox/_seal.py",
    "record/_place.py",  # a recording with its journal
}


def mode(path: Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_one_writer() -> None:
    """No other module moves a file into its place."""
    moves = re.compile(r"\bos\.(replace|rename)\b|\.rename\(|\.replace\(\w+\)|NamedTemporaryFile|mkstemp")
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if moves.search(path.read_text())}
    assert found == IN_STEPS_OF_THEIR_OWN


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o755, 0o4755, 0o2755])
def test_permissions_stay(tmp_path: Path, permissions: int) -> None:
    """A replaced file has the permissions that it had, and is never readable for more people while it is written."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(permissions)
    with replacing(path) as file:
        (fresh,) = set(tmp_path.iterdir()) - {path}
        assert mode(fresh) == 0o600
        file.write(b"new")
    assert (path.read_text(), mode(path)) == ("new", permissions)
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_permissions_of_any(tmp_path: Path) -> None:
    """The umask decides, as for every other program."""
    (tmp_path / "plain").touch()
    replace_text(tmp_path / "new", ["a", "b\n"])
    assert (tmp_path / "new").read_bytes() == b"ab\n"
    assert mode(tmp_path / "new") == mode(tmp_path / "plain")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(tmp_path: Path) -> None:
    """Run by an administrator, a user's file stays the user's."""
    path = tmp_path / "file"
    path.touch(0o664)
    os.chown(path, 12345, 23456)
    replace_text(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (12345, 23456, 0o644)
    made = tmp_path / "made"
    made.write_text("made")
    move_into_place(made, path)
    assert (path.read_text(), path.stat().st_uid, path.stat().st_gid) == ("made", 12345, 23456)


def test_a_group_that_cannot_be_kept_lends_no_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one group might do with the file is not granted to another."""
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o664)
    before = os.stat_result((*path.stat()[:5], path.stat().st_gid + 1, *path.stat()[6:]))

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refused)
    monkeypatch.setattr(_atomic, "_state", lambda _: before)
    replace_text(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o604)


def test_links_stay(tmp_path: Path) -> None:
    """A link stays one, also a chain, and one that leads to another folder or to a file that is yet to be."""
    (tmp_path / "folder").mkdir()
    target, link, chain = tmp_path / "folder" / "target", tmp_path / "link", tmp_path / "chain"
    link.symlink_to(target)
    chain.symlink_to(link)
    for text in ("first", "second"):
        replace_text(chain, text)
        assert (chain.is_symlink(), link.is_symlink(), target.read_text()) == (True, True, text)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["chain", "folder", "link", "target"]


def test_a_link_that_is_replaced_itself(tmp_path: Path) -> None:
    """Where links are not followed, what one leads to is not touched, and its permissions are not taken over."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("the user's")
    target.chmod(0o604)
    link.symlink_to(target)
    with replacing(link, follow=False) as file:
        file.write(b"new")
    (tmp_path / "plain").touch()
    assert (link.is_symlink(), link.read_text(), mode(link)) == (False, "new", mode(tmp_path / "plain"))
    assert (target.read_text(), mode(target)) == ("the user's", 0o604)


def test_nothing_else_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has the name of the new one is not opened, and not removed."""
    taken = tmp_path / ".file.taken.new"
    taken.write_text("the user's")
    monkeypatch.setattr(_atomic, "unused_name", lambda _: taken)
    with pytest.raises(FileExistsError), replacing(tmp_path / "file"):
        raise AssertionError("never come here")
    assert (taken.read_text(), list(tmp_path.iterdir())) == ("the user's", [taken])
    monkeypatch.undo()
    for name in ("file.new", "file.part", "file.tmp", "file.joining"):
        (tmp_path / name).write_text("the user's")
        replace_text(tmp_path / "file", "ours")
        assert (tmp_path / name).read_text() == "the user's"


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    """Whatever ends the block: the old file is there, and nothing beside it."""
    path = tmp_path / "file"
    path.write_text("old")
    for error in (ValueError("a fault"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")):
        with pytest.raises(type(error)), replacing(path) as file:
            file.write(b"new")
            raise error
    with pytest.raises(UnicodeEncodeError):
        replace_text(path, "\udcff")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])
    replace_text(path, "\udcff", errors="backslashreplace")
    assert path.read_text() == "\\udcff"


@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_a_disk_that_fails_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """A failure at the end, when all is written, is one as well."""
    path = tmp_path / "file"
    path.write_text("old")

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, broken, fails)
    with pytest.raises(OSError, match="Input/output error"):
        replace_text(path, "new")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_it_is_on_the_disk_before_it_is_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the content, then the name, then the folder."""
    steps: list[str] = []

    def seen(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            steps.append(name)
            return real(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, seen(name, getattr(os, name)))
    with replacing(tmp_path / "file") as file:
        file.write(b"new")
    assert steps == ["fsync", "replace", "fsync"]


def test_what_cannot_be_replaced(tmp_path: Path) -> None:
    """A folder, a folder that is not there, and a file that its user has closed to writing."""
    with pytest.raises(IsADirectoryError):
        replace_text(tmp_path, "new")
    with pytest.raises(IsADirectoryError):
        move_into_place(tmp_path / "made", tmp_path)
    with pytest.raises(FileNotFoundError):
        replace_text(tmp_path / "nowhere" / "file", "new")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a trace in the folder, whether the file can be written, is there, or neither."""
    path, nowhere = tmp_path / "file", tmp_path / "nowhere"
    check_writable(path)
    check_writable("/dev/null")
    path.write_text("old")
    check_writable(path)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])

    def reason(path: Path) -> str:
        with pytest.raises(OSError) as error:
            check_writable(path)
        return str(error.value.strerror)

    assert reason(tmp_path) == "it is a directory (name a file in it)"
    assert reason(nowhere / "file") == f"there is no directory {nowhere}"
    assert reason(path / "file") == f"there is no directory {path}"
    assert reason(tmp_path / ("x" * 300)) == os.strerror(errno.ENAMETOOLONG)
    path.chmod(0o444)
    assert reason(path) == f"it is read-only (chmod u+w {path})"
    path.unlink()

    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)  # as a disk that is mounted so
    assert reason(path) == os.strerror(errno.EROFS)


def test_special_files(tmp_path: Path) -> None:
    """A pipe or a device takes the data itself, and stays."""
    with replacing("/dev/null") as file:
        file.write(b"x")
    assert not os.path.isfile("/dev/null")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_text(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_long_names(tmp_path: Path) -> None:
    """The longest name that a disk takes has room for a new file beside it."""
    path = tmp_path / ("\N{SNOWMAN}" * 85)
    replace_text(path, "new")
    assert path.read_text() == "new"
    assert unused_name(path) != unused_name(path)


def test_staged_files(tmp_path: Path) -> None:
    """One that is never committed leaves nothing; one that was is in its place for good."""
    path = tmp_path / "file"

    def pieces() -> Iterator[bytes]:
        yield b"a"
        yield b"b"

    with Staged(path) as staged:
        staged.file.writelines(pieces())
    assert list(tmp_path.iterdir()) == []
    with Staged(path) as staged:
        staged.file.writelines(pieces())
        staged.commit()
    staged.discard()
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"ab", [path])
