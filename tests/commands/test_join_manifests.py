"""`anymps join-manifests`: what shards changed in their copies of a manifest is in one, or one line says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.commands import main

BASE = """\
# Known to fail.
# why: no kernel (lib.py)
t.py::a NotImplementedError
# why: float64 (lib.py)
t.py::b TypeError
# the last one
t.py::c ValueError
"""


def join(capsys: pytest.CaptureFixture[str], into: Path, *shards: Path) -> tuple[int, str]:
    """The status of the command and what it says."""
    status = main(["join-manifests", *map(str, shards), "--into", str(into)])
    return status, capsys.readouterr().err


def shard(path: Path, text: str) -> Path:
    """A shard's copy."""
    path.write_text(text)
    return path


def test_what_each_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One adds an entry, one changes an ending, one takes an entry out; no shard undoes what another did."""
    into = shard(tmp_path / "m.txt", BASE)
    one = shard(tmp_path / "1.txt", BASE + "# why: complex (lib.py)\nt.py::d RuntimeError\n")
    two = shard(tmp_path / "2.txt", BASE.replace("# why: float64 (lib.py)\nt.py::b TypeError", "t.py::b KeyError"))
    three = shard(tmp_path / "3.txt", BASE.replace("# why: no kernel (lib.py)\nt.py::a NotImplementedError\n", ""))
    said = f"anymps: manifest {into}: 1 added, 1 changed, 1 removed, by 3 shards\n"
    assert join(capsys, into, one, two, three) == (0, said)
    assert into.read_text() == (
        "# Known to fail.\nt.py::b KeyError\n# the last one\nt.py::c ValueError\n"
        "# why: complex (lib.py)\nt.py::d RuntimeError\n"
    )


def test_the_first_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there was none, it is what all shards list, and what two list alike stands there once."""
    one = shard(tmp_path / "1.txt", "# why: no kernel\nt.py::a OSError\n")
    two = shard(tmp_path / "2.txt", "# why: no kernel\nt.py::a OSError\nt.py::b KeyError\n")
    into = tmp_path / "m.txt"
    said = f"anymps: manifest {into}: 2 added, 0 changed, 0 removed, by 2 shards\n"
    assert join(capsys, into, one, two) == (0, said)
    text = into.read_text()
    assert text.startswith("# Tests that are expected to fail on mps, each with its exception.\n")
    assert text.endswith("\n\n# why: no kernel\nt.py::a OSError\nt.py::b KeyError\n")


def test_nothing_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is not written again."""
    into, one = shard(tmp_path / "m.txt", BASE), shard(tmp_path / "1.txt", BASE)
    before = into.stat()
    assert join(capsys, into, one)[1] == f"anymps: manifest {into}: 0 added, 0 changed, 0 removed, by 1 shard\n"
    assert (into.stat().st_ino, into.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_shards_that_disagree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test that ended in two ways is one line with both, and the manifest stays as it was."""
    into = shard(tmp_path / "m.txt", BASE)
    one = shard(tmp_path / "1.txt", BASE.replace("ValueError", "KeyError"))
    two = shard(tmp_path / "2.txt", BASE.replace("t.py::c ValueError\n", ""))
    assert join(capsys, into, one, two) == (
        2,
        f"anymps: t.py::c: {one} expects KeyError, {two} removes the test. "
        "Run the test once more, and correct one of the two files\n",
    )
    assert into.read_text() == BASE


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing, cut, binary or doubly named file, and a folder that is not there, are one line each."""
    into, good = shard(tmp_path / "m.txt", BASE), shard(tmp_path / "1.txt", BASE + "t.py::d OSError\n")
    missing, cut, binary = tmp_path / "none.txt", shard(tmp_path / "cut.txt", "t.py::a Os\nt.py:"), tmp_path / "b.txt"
    binary.write_bytes(b"\xff\xfe")
    nowhere = tmp_path / "none" / "m.txt"
    entry = "a line is a test id, a space and an exception's name; comments have lines of their own"
    for path, shards, said in (
        (into, [good, missing], f"manifest {missing} cannot be read: No such file or directory"),
        (into, [good, cut], f"{cut}:2: {entry}: 't.py:'"),
        (into, [binary], f"manifest {binary} cannot be read: it is not a text file in UTF-8"),
        (into, [good, into], f"--into {into} is one of the shards: name the manifest as it was before they ran"),
        (nowhere, [good], f"{nowhere} cannot be written: there is no directory {nowhere.parent}"),
    ):
        assert join(capsys, path, *shards) == (2, f"anymps: {said}\n")
    assert into.read_text() == BASE
