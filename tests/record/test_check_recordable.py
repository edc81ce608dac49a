"""A place that no recording can take is refused before long work, in one line, and nothing is left there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anymps._atomic import Staged
from anymps._errors import RecordingError
from anymps.record import RecordingWriter, check_recordable


def test_places_that_a_recording_can_take(tmp_path: Path) -> None:
    """A new name, an empty file, a recording that nobody writes, a link to one; nothing is changed."""
    (tmp_path / "empty").touch()
    RecordingWriter(tmp_path / "older.anymps", {}).close()
    (tmp_path / "link").symlink_to("older.anymps")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("new.anymps", "empty", "older.anymps", "link"):
        check_recordable(tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_disk_that_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no mode tells, such as a disk that is read-only, is found by making the file."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Staged, "__init__", refuse)
    path = tmp_path / "run.anymps"
    with pytest.raises(RecordingError) as caught:
        check_recordable(path)
    assert str(caught.value) == f"{path} cannot be written: Read-only file system"
