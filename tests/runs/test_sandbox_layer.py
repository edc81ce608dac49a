"""The layer of a plan, in this process: where a file is looked for, what a rename moves, which errors there are."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anymps.runs.sandbox import Layer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="paths of POSIX")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which nothing may change: `file`, `link` to it, `tree/a/b`, and an empty folder `empty`."""
    folder = tmp_path.resolve() / "work"
    for name in ("file", "tree/a/b"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "link").symlink_to("file")
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def layer(work: Path) -> Layer:
    """A layer in a folder beside it, which leaves `free` alone."""
    private = work.parent / "private"
    private.mkdir()
    (work.parent / "free").mkdir()
    return Layer(str(private), (str(work.parent / "free"),))


def write(layer: Layer, name: str, text: str = "new") -> None:
    Path(layer.writable(name, keep=False)).write_text(text)


def read(layer: Layer, name: str) -> str | None:
    """The text under a name; nothing where there is no file."""
    where = Path(layer.at(str(layer.key(name))))
    return where.read_text() if where.exists() else None


def error_of(function: Callable[..., Any], *arguments: Any) -> tuple[int | None, Any, Any]:
    """Number and names of the error that a call raises."""
    with pytest.raises(OSError) as caught:
        function(*arguments)
    return caught.value.errno, caught.value.filename, caught.value.filename2


def test_keys(layer: Layer, work: Path) -> None:
    """Absolute, without `..` and links; of the last link only where it is followed; nothing for what is left alone."""
    assert layer.key("tree/../file") == layer.key("./link") == layer.key(str(work / "file")) == f"{work}/file"
    assert layer.key("link", False) == f"{work}/link"
    assert layer.key("/") == layer.key("/..") == "/"
    assert [layer.key(path) for path in (3, "", "a\0b", work.parent / "free" / "x", work.parent / "private")] == [
        None
    ] * 5
    folder = os.open("tree", os.O_RDONLY)
    assert layer.key("a/b", True, folder) == f"{work}/tree/a/b"
    os.close(folder)


def test_links_in_a_circle(layer: Layer, work: Path) -> None:
    """Up to forty are followed, as Linux does it."""
    Path("one").symlink_to("other")
    Path("other").symlink_to("one")
    assert error_of(layer.key, "one") == (errno.ELOOP, f"{work}/one", None)
    for number in range(41):
        Path(f"l{number}").symlink_to(f"l{number + 1}")
    Path("l41").touch()
    assert layer.key("l1") == f"{work}/l41"
    assert error_of(layer.key, "l0")[0] == errno.ELOOP


def test_a_renamed_file_is_read_where_it_lies(layer: Layer, work: Path) -> None:
    """Nothing is copied; the old name is gone, and told; a name of the same file changes nothing."""
    layer.rename("file", str(work / "file"))
    assert (read(layer, "file"), layer.touched) == ("file", False)
    layer.rename("file", "new")
    assert (read(layer, "file"), read(layer, "new")) == (None, "file")
    assert layer.at(f"{work}/new") == f"{work}/file"
    assert (list(layer.written), list(layer.removed)) == ([f"{work}/new"], [f"{work}/file"])
    layer.rename("new", "file")
    assert (read(layer, "file"), read(layer, "new")) == ("file", None)
    write(layer, "fresh")
    layer.rename("fresh", "tree/a/b")
    assert (read(layer, "tree/a/b"), read(layer, "fresh")) == ("new", None)
    assert (work / "tree/a/b").read_text() == "tree/a/b"


def test_errors_of_a_rename(layer: Layer) -> None:
    """Those of Linux, with both names."""
    for source, target, number in (
        ("none", "new", errno.ENOENT),
        ("file", "empty", errno.EISDIR),
        ("tree", "file", errno.ENOTDIR),
        ("empty", "tree", errno.ENOTEMPTY),
        ("tree", "tree/a/c", errno.EINVAL),
        ("file", "none/new", errno.ENOENT),
    ):
        assert error_of(layer.rename, source, target) == (number, source, target)
    assert not layer.touched
    layer.rename("tree", "empty")
    assert read(layer, "empty/a/b") == "tree/a/b"


def test_a_file_leaves_the_layer_and_comes_in(layer: Layer, work: Path) -> None:
    """What is left alone is really written, and what comes from there is really moved."""
    free = work.parent / "free"
    layer.rename("file", free / "file")
    assert (read(layer, "file"), (free / "file").read_text()) == (None, "file")
    layer.rename(free / "file", "back")
    assert (read(layer, "back"), (free / "file").exists()) == ("file", False)
    layer.rename("tree", free / "tree")
    assert ((free / "tree/a/b").read_text(), read(layer, "tree/a/b")) == ("tree/a/b", None)


def test_files_are_removed(layer: Layer, work: Path) -> None:
    """For the program; errors have the name that it gave."""
    for function, name, number in (
        (layer.remove, "none", errno.ENOENT),
        (layer.remove, "tree", errno.EISDIR),
        (layer.rmdir, "none", errno.ENOENT),
        (layer.rmdir, "file", errno.ENOTDIR),
        (layer.rmdir, "tree", errno.ENOTEMPTY),
        (layer.mkdir, "tree", errno.EEXIST),
        (layer.mkdir, "link", errno.EEXIST),
    ):
        assert error_of(function, name) == (number, name, None)
    layer.remove("link")
    layer.rmdir("empty")
    assert sorted(layer.names(str(work))) == ["file", "tree"]
    assert list(layer.removed) == [f"{work}/link", f"{work}/empty"]
    assert error_of(layer.remove, "link")[0] == errno.ENOENT
    layer.mkdir("empty", 0o700)
    write(layer, "empty/new")
    assert layer.names(f"{work}/empty") == ["new"]
    assert os.stat(layer.at(f"{work}/empty")).st_mode & 0o777 == 0o700
    layer.remove("empty/new")
    assert layer.written == {}


def test_what_is_kept_of_a_file_that_is_written(layer: Layer, work: Path) -> None:
    """All of it with its mode, or nothing; a link and a folder are made anew; without a parent nothing can be."""
    Path("file").chmod(0o444)
    kept = Path(layer.claim(f"{work}/file"))
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("file", 0o644)
    assert kept == work.parent / f"private{work}/file"
    assert not Path(layer.claim(f"{work}/tree/a/b", keep=False)).exists()
    assert os.readlink(layer.claim(f"{work}/link")) == "file"
    assert Path(layer.claim(f"{work}/empty")).is_dir()
    assert layer.claim(f"{work}/none/x") == f"{work}/none/x"
    assert layer.writable("/dev/null", keep=True) == "/dev/null"
    assert layer.writable("file", keep=True, exclusive=True) == str(kept)
