"""A small recording in a file, and the line that refuses to open it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anymps._errors import RecordingError
from anymps.record import Phase, Recording, RecordingBuilder, RecordingWriter

ADD, MUL = "aten::add.Tensor", "aten::mul.Tensor"


def write(path: Path, *, meta: dict[str, object] | None = None, entries: int = 2, close: bool = True) -> None:
    """A small recording of one operator at one line."""
    writer = RecordingWriter(path, meta or {})
    builder = RecordingBuilder(writer)
    line = builder.site("train.py", 3, "main", "y = x + 1")
    for number in range(entries):
        builder.entry(ADD, start_ns=number * 10, duration_ns=4, phase=Phase.FORWARD, site=line)
    builder.end_step(entries * 10)
    builder.flush()
    if close:
        writer.close()


def one_line_error(path: Path) -> str:
    """The text with which opening fails."""
    with pytest.raises(RecordingError) as caught:
        Recording.open(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def begin(path: Path, script: str, calls: int, operator: str = ADD) -> RecordingBuilder:
    """A run of so many calls that goes on."""
    builder = RecordingBuilder(RecordingWriter(path, {"script": script}))
    line = builder.site(script, 3, "main", "y = x + 1")
    for number in range(calls):
        builder.entry(operator, start_ns=number * 10, duration_ns=4, site=line)
    builder.flush()
    return builder


def kill(folder: Path, script: str = "old.py", calls: int = 5000) -> Path:
    """The files of a run that was killed, as they lie in its folder."""
    live = folder / "live"
    live.mkdir()
    builder = begin(live / "w.anymps", script, calls)
    dead = folder / "dead"
    dead.mkdir()
    for file in live.iterdir():
        shutil.copyfile(file, dead / file.name)
    builder.close().close()
    shutil.rmtree(live)
    assert {file.name for file in dead.iterdir()} == {"w.anymps", "w.anymps-wal", "w.anymps-shm"}
    return dead / "w.anymps"


def told(path: Path) -> tuple[object, int, bool]:
    """Whose run it is, how many calls it made, and whether all of it is there."""
    with Recording.open(path) as recording:
        assert sum(use.count for use in recording.operators()) == recording.entry_count
        return recording.meta.get("script"), recording.entry_count, recording.complete


def beside(path: Path) -> list[str]:
    """What else lies there."""
    return sorted(file.name for file in path.parent.iterdir() if file != path)
