"""The manifest of `pytest --mps` as a file: read, refused with one line, and brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps._errors import UsageError
from anymps._manifest import Changes, Entry, ending_of, key, read_manifest, updated, write_manifest


def written(path: Path, *lines: str) -> Path:
    """A manifest of these lines."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_reading(tmp_path: Path) -> None:
    """Ids may hold spaces, `::` and `#`; comments and empty lines are left out; phases are told apart."""
    path = written(
        tmp_path / "m.txt",
        "# why",
        "",
        "t/a.py::test_x[a b::c #1] NotImplementedError",
        "  t/a.py::test_y RuntimeError@setup  ",
        "t/a.py::test_z AssertionError+OSError@teardown",
    )
    entries = read_manifest(path).entries
    assert entries == {
        "t/a.py::test_x[a b::c #1]": Entry("NotImplementedError", 3),
        "t/a.py::test_y": Entry("RuntimeError@setup", 4),
        "t/a.py::test_z": Entry("AssertionError+OSError@teardown", 5),
    }
    assert [entry.failures for entry in entries.values()] == [
        {"call": {"NotImplementedError"}},
        {"setup": {"RuntimeError"}},
        {"call": {"AssertionError"}, "teardown": {"OSError"}},
    ]


def test_the_ending_is_what_is_read() -> None:
    """What is written for failures by phase is read as the same failures."""
    failures = {"teardown": {"OSError"}, "call": {"KeyError", "AssertionError"}, "setup": {"TypeError"}}
    assert ending_of(failures) == "TypeError@setup+AssertionError+KeyError+OSError@teardown"
    assert Entry(ending_of(failures), 1).failures == failures
    assert ending_of({}) == ""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("test_alone", "'test_alone'"),
        ("<<<<<<< ours", "'<<<<<<< ours'"),
        ("t.py::x ValueError  # see 12", "'t.py::x ValueError  # see 12'"),
        ("t.py::x ValueError # it is TypeError", "'t.py::x ValueError # it is TypeError'"),
        ("t.py::x ValueError@call", "'t.py::x ValueError@call'"),
    ],
)
def test_lines_that_are_no_entries(tmp_path: Path, line: str, shown: str) -> None:
    """A line that cannot be an entry ends the run with its number and text, a comment behind an entry too."""
    path = written(tmp_path / "m.txt", "t.py::a OSError", line)
    with pytest.raises(UsageError) as error:
        read_manifest(path)
    assert str(error.value) == (
        f"{path}:2: a line is a test id, a space and an exception's name; comments have lines of their own: {shown}"
    )


def test_a_test_that_is_listed_twice(tmp_path: Path) -> None:
    """It is one line, with the number of both."""
    path = written(tmp_path / "m.txt", "t.py::a OSError", "t.py::a ValueError")
    with pytest.raises(UsageError) as error:
        read_manifest(path)
    assert str(error.value) == f"{path}:2: t.py::a is already on line 1"


def test_updating_touches_its_own_lines_alone() -> None:
    """Other entries, comments, empty lines and their order stay; a new entry stands behind the last smaller one."""
    text = "# head\n\nt.py::a OSError\n# about c\nt.py::c OSError\nother/t.py::z KeyError\n"
    new = updated(text, Changes({"t.py::b": "TypeError", "t.py::c": "ValueError", "u.py::a": "OSError"}, {"t.py::a"}))
    assert new == (
        "# head\n\n# about c\nt.py::c ValueError\nother/t.py::z KeyError\nt.py::b TypeError\nu.py::a OSError\n"
    )
    assert updated(text, Changes({})) == text
    sorted_text = "# head\n\nt.py::a OSError\n# about c\nt.py::c OSError\n"
    assert updated(sorted_text, Changes({"t.py::b": "TypeError"})) == (
        "# head\n\nt.py::a OSError\nt.py::b TypeError\n# about c\nt.py::c OSError\n"
    )
    assert updated("# head\n\nt.py::b OSError\n", Changes({"t.py::a": "KeyError"})) == (
        "# head\n\nt.py::a KeyError\nt.py::b OSError\n"
    )


def test_reasons_go_with_their_entries() -> None:
    """A reason is written above its entry, kept while the ending is the same, and leaves with it; others stay."""
    reasons = {"t.py::a": "no kernel (lib.py)", "t.py::b": "float64 (lib.py)"}
    both = {"t.py::a": "OSError", "t.py::b": "TypeError"}
    text = updated("# head\n", Changes(both, reasons=reasons))
    assert text == "# head\n# why: no kernel (lib.py)\nt.py::a OSError\n# why: float64 (lib.py)\nt.py::b TypeError\n"
    assert updated(text, Changes(both, reasons={"t.py::a": "other words", "t.py::b": "other words"})) == text
    assert updated(text, Changes({"t.py::b": "KeyError"}, {"t.py::a"}, {"t.py::b": "a key"})) == (
        "# head\n# why: a key\nt.py::b KeyError\n"
    )
    assert updated("# mine\nt.py::a OSError\n# why: of nothing\n", Changes(both, reasons=reasons)) == (
        "# mine\n# why: no kernel (lib.py)\nt.py::a OSError\n# why: float64 (lib.py)\nt.py::b TypeError\n"
        "# why: of nothing\n"
    )


def test_ids_that_cannot_be_printed() -> None:
    """A test id stays on one line, whatever is in it, and can be read back."""
    test = "t.py::x[a\nb\u2028]"
    assert key(test) == "t.py::x[a\\nb\\u2028]"
    assert updated("", Changes({key(test): "OSError"})) == "t.py::x[a\\nb\\u2028] OSError\n"


def test_writing_is_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that breaks off leaves the file as it was, and nothing beside it; a good one keeps the file's mode."""
    path = written(tmp_path / "m.txt", "t.py::a OSError")
    path.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            write_manifest(path, Changes({"t.py::b": "OSError"}))
    assert path.read_text() == "t.py::a OSError\n"
    assert list(tmp_path.iterdir()) == [path]
    write_manifest(path, Changes({"t.py::b": "OSError"}, {"t.py::a"}))
    assert path.read_text() == "t.py::b OSError\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_new_file_says_what_it_is(tmp_path: Path) -> None:
    """The first write begins with comments for who finds the file, and is read as the entries alone."""
    path = tmp_path / "m.txt"
    write_manifest(path, Changes({"t.py::a": "OSError"}))
    lines = path.read_text().splitlines()
    assert lines[0] == "# Tests that are expected to fail on mps, each with its exception."
    assert lines[-1] == "t.py::a OSError"
    assert list(read_manifest(path).entries) == ["t.py::a"]
