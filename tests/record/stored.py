"""A small recording in a file, and the line that refuses to open it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps._errors import RecordingError
from anymps.record import Phase, Recording, RecordingBuilder, RecordingWriter

ADD = "aten::add.Tensor"


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
