"""Which files a program may have changed, and that all of them are written or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anymps._errors import UsageError
from anymps.commands._target import Target, TargetNotFoundError
from anymps.findings import RULES
from anymps.fix import Program, edits_for, write_all
from anymps.fix._edits import apply_all
from anymps.record import Site

TEXT = "o = Adam(p)\n"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A repository with the script in a folder of it."""
    (tmp_path / ".git").mkdir()
    for name in ("app/train.py", "lib/net.py", "venv/lib/site-packages/other.py", "env/lib/more.py", "lib/bad.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = (\n" if "bad" in name else TEXT)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    return Program.read(tmp_path / "app" / "train.py")


@pytest.mark.parametrize(
    ("file", "owned"),
    [
        ("app/train.py", True),
        ("lib/net.py", True),
        ("venv/lib/site-packages/other.py", False),
        ("env/lib/more.py", False),
        ("lib/none.py", False),
        ("../net.py", False),
    ],
)
def test_what_is_the_projects(program: Program, file: str, owned: bool) -> None:
    """Below the top of the repository; nothing that is installed there."""
    (program.root.parent / "net.py").write_text(TEXT)
    assert program.owns(Site(str(program.root / file), 1, "", "")) is owned


def test_without_a_repository_it_is_the_folder(tmp_path: Path) -> None:
    """Of the script."""
    (tmp_path / "a").mkdir()
    for name in ("net.py", "a/train.py"):
        (tmp_path / name).write_text(TEXT)
    program = Program.read(tmp_path / "a" / "train.py")
    assert not program.owns(Site(str(tmp_path / "net.py"), 1, "", ""))


def test_a_module_is_edited_beside_the_script(program: Program) -> None:
    """One that cannot be read is left alone, with the reason."""
    files = [program.root / name for name in ("app/train.py", "lib/net.py", "lib/bad.py")]
    found = [RULES["MPS812"].finding(Site(str(file), 1, "", ""), what="It.", count=1) for file in files]
    edits, suggestions = edits_for(found, program)
    assert [f"{edit.finding.id} at {edit.file.name}:{edit.line}" for edit in edits] == [
        "MPS812 at net.py:1",
        "MPS812 at train.py:1",
    ]
    bad = os.path.relpath(files[2])
    assert [suggestion.why for suggestion in suggestions] == [
        f"{bad}, line 1, is not valid Python: '(' was never closed"
    ]
    changed = list(apply_all(edits, program).differences())
    assert [new.path.name for _, new in changed] == ["train.py", "net.py"]
    assert {new.text for _, new in changed} == {"o = Adam(p, fused=True)\n"}


def test_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second cannot be moved: the first is as it was, and nothing is left beside them."""
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    for path in (first, second):
        path.write_bytes(b"1")
    before, after = dict.fromkeys((first, second), b"1"), dict.fromkeys((first, second), b"2")
    real = os.replace

    def replace(source: str, target: Path) -> None:
        if target == second:
            raise PermissionError(1, "Operation not permitted")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(UsageError) as raised:
            write_all(after, before)
    assert str(raised.value) == f"{second} cannot be written: Operation not permitted"
    assert sorted((file.name, file.read_bytes()) for file in tmp_path.iterdir()) == [("a.py", b"1"), ("b.py", b"1")]
    write_all(after, before)
    assert {file.read_bytes() for file in tmp_path.iterdir()} == {b"2"}
    with pytest.raises(UsageError) as raised:
        write_all(after, before)
    assert str(raised.value) == f"{first} is not written: it has changed since"


def test_a_file_of_several_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them mean the new text, and the old one again where another file cannot be written."""
    first, other, second = tmp_path / "a.py", tmp_path / "link.py", tmp_path / "b.py"
    first.write_bytes(b"1")
    second.write_bytes(b"1")
    os.link(first, other)
    before, after = dict.fromkeys((first, second), b"1"), dict.fromkeys((first, second), b"2")

    def replace(source: str, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(UsageError):
            write_all(after, before)
    assert [path.read_bytes() for path in (first, other, second)] == [b"1"] * 3
    write_all(after, before)
    assert [path.read_bytes() for path in (first, other, second)] == [b"2"] * 3
    assert first.samefile(other)


def test_the_file_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the current folder, and without running its package."""
    for name in ("pkg/__init__.py", "pkg/inner/__init__.py", "pkg/inner/__main__.py", "pkg/mod.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise ValueError\n")
    monkeypatch.chdir(tmp_path)
    for name, file in (("pkg.mod", "pkg/mod.py"), ("pkg.inner", "pkg/inner/__main__.py")):
        target = Target(name, is_module=True)
        target.check()
        assert target.file == Path(file)
    with pytest.raises(TargetNotFoundError, match=r"there is no file of a module named 'pkg\.none'"):
        _ = Target("pkg.none", is_module=True).file
    assert Program.read(Path("pkg/mod.py"), tmp_path).root == tmp_path
