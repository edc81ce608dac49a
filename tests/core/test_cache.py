"""The cache of compiled cores: what lies there is loaded only if it is whole and nobody else can have put it there."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import platformdirs
import pytest

from anymps import BuildError, UsageError
from anymps._cache import cache_home, sha256_of, why_unsafe
from anymps.device import _build

NAME = "_native.so"


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a finished core in a cache of its own; its bytes are no real module."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_build, "_module_name", lambda: NAME)
    directory = tmp_path / "cache" / "native" / "key"
    directory.mkdir(parents=True)
    (directory / NAME).write_bytes(b"\x7fELF" + bytes(100_000))
    (directory / "sha256").write_text(sha256_of(directory / NAME) + "\n")
    for path in (tmp_path / "cache", directory.parent, directory):
        path.chmod(0o755)
    for path in directory.iterdir():
        path.chmod(0o644)
    return directory


def test_a_whole_core_is_sound(core: Path) -> None:
    """As it was built, it is loaded."""
    assert _build._is_sound(core)


@pytest.mark.parametrize("length", [0, 50_000])
def test_a_core_that_was_cut_short(core: Path, length: int) -> None:
    """A disk that was full, or a machine that went down, leaves a core that would end the process: it is built anew."""
    os.truncate(core / NAME, length)
    assert not _build._is_sound(core)


def test_a_core_that_was_changed(core: Path) -> None:
    """One other byte is enough."""
    data = bytearray((core / NAME).read_bytes())
    data[77] ^= 1
    (core / NAME).write_bytes(data)
    assert not _build._is_sound(core)


def test_a_core_without_its_checksum(core: Path) -> None:
    """A core of a release that wrote none is built anew; so is one whose checksum is no text."""
    (core / "sha256").write_bytes(b"\xff\xfe\x00")
    assert not _build._is_sound(core)
    (core / "sha256").unlink()
    assert not _build._is_sound(core)


@pytest.mark.parametrize("which", ["cache", "native", "key", NAME, "sha256"])
def test_what_others_may_write_is_not_loaded(core: Path, which: str) -> None:
    """The right of others to write to the file, or to any directory of the cache above it, is enough."""
    paths = [core / NAME, core / "sha256", core, core.parent, core.parent.parent]
    (path,) = (path for path in paths if path.name == which)
    path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWOTH)
    assert not _build._is_sound(core)
    assert why_unsafe(path) == f"{path} can be written by other users"


def test_a_cache_that_others_may_write_is_refused(core: Path) -> None:
    """To build there would help nothing: one line says what to do."""
    native = core.parent
    native.chmod(0o777)
    with pytest.raises(BuildError) as error:
        _build.check_cache()
    assert str(error.value) == (
        f"{native} can be written by other users, and code is loaded from there: remove that permission (chmod "
        "go-w), or name another place in ANYMPS_CACHE_DIR"
    )


def test_what_another_user_owns(core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core of another user's is not loaded; one of root's is."""
    owner = core.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    expected = f"{core} belongs to another user" if owner else ""
    assert why_unsafe(core) == expected
    other = core / "other"
    other.mkdir()
    if owner == 0:  # only root can give a file away
        os.chown(other, 12345, -1)
        assert why_unsafe(other) == f"{other} belongs to another user"


def test_a_group_may_write_if_it_is_the_users_own(core: Path) -> None:
    """Some systems give each user a group of the same name, and let it write to everything."""
    core.chmod(0o775)
    import grp

    own = grp.getgrgid(core.stat().st_gid).gr_name == pwd.getpwuid(core.stat().st_uid).pw_name
    assert why_unsafe(core) == ("" if own else f"{core} can be written by other users")
    if core.stat().st_uid == 0:
        os.chown(core, -1, 12345)
        assert why_unsafe(core) == f"{core} can be written by other users"


def test_a_cache_that_is_made_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the process's umask lets others do."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    before = os.umask(0)
    try:
        _build._make_directory(_build.cache_directory())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "native").stat().st_mode) == 0o755


def test_no_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home, or with a relative one, one line names the variable; nothing goes to the current folder."""
    monkeypatch.delenv("ANYMPS_CACHE_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: "here/.cache/anymps")
    expected = "there is no home directory for the cache: set ANYMPS_CACHE_DIR"
    with pytest.raises(UsageError) as usage:
        cache_home()
    assert str(usage.value) == expected
    with pytest.raises(BuildError) as build:
        _build.cache_directory()
    assert str(build.value) == expected


def test_a_home_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """`~nobody-here/x` is one line."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", "~nobody-here/x")
    with pytest.raises(UsageError) as error:
        cache_home()
    assert str(error.value) == "ANYMPS_CACHE_DIR=~nobody-here/x is not a directory: there is no such home directory"


@pytest.mark.parametrize("name", ["x" * 5000, "a\nb"])
def test_odd_names_of_a_cache_hold_no_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """A name that no file system takes is as good as an empty cache when a core is looked for."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / name))
    assert not _build.is_built()


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ('g++ "', 'CXX=g++ " cannot be read (No closing quotation)'),
        ('""', 'CXX="" cannot be run'),
        ("/", "CXX=/ cannot be run"),
    ],
)
def test_odd_compilers(monkeypatch: pytest.MonkeyPatch, chosen: str, words: str) -> None:
    """A `CXX` that is no command is one line."""
    monkeypatch.setenv("CXX", chosen)
    with pytest.raises(BuildError) as error:
        _build.is_built()
    assert str(error.value) == f"the C++ compiler {words}: correct CXX, or unset it"
