"""Joins recordings into a file that appears complete or not at all, and refuses what cannot be joined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from anymps._atomic import staged_folder
from anymps._errors import RecordingError
from anymps.record._file import open_readonly
from anymps.record._join import join
from anymps.record._place import check_free, held, take_name
from anymps.record._recording import Recording
from anymps.record._writer import RecordingWriter

_ALIKE = (
    ("torch_version", "torch"),
    ("mac_details", "Mac"),
    ("virtual", "device (virtual or a Mac's own)"),
    ("source", "source of calls (--source)"),
)


def join_into(
    parts: Iterable[tuple[str, Recording]], path: Path | None, facts: Mapping[str, object] | None = None
) -> Recording:
    """One recording of all at `path`, or in memory; `facts` are those that hold for the whole in place of the parts'.

    What lies at `path` is replaced once the new one is complete. Raises RecordingError if a part is damaged or the
    place cannot be written; then `path` is as it was.
    """
    if path is None:
        with RecordingWriter(None, {}) as writer:
            _join(parts, writer, facts)
        return _checked(writer)
    target = Path(os.path.realpath(path))
    check_free(target)
    try:
        with staged_folder(target) as folder:
            fresh = folder / "files" / target.name
            fresh.parent.mkdir()  # a recording's folder is locked while it is made
            with RecordingWriter(fresh, {}) as writer:
                _join(parts, writer, facts)
            _checked(writer).close()
            with held(target):
                check_free(target)  # since then another run may have taken it
                take_name(fresh, target)
    except OSError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror or error}") from None
    return Recording(open_readonly(path), str(path))


def _checked(writer: RecordingWriter) -> Recording:
    """The joined recording. Each part is sound, but their clocks and numbers go on from one to the next."""
    try:
        return writer.recording(checked=True)
    except RecordingError as error:
        raise RecordingError(
            "these recordings cannot be joined: their numbers add up to more than a recording can hold"
        ) from error


def _join(parts: Iterable[tuple[str, Recording]], writer: RecordingWriter, facts: Mapping[str, object] | None) -> None:
    join(parts, writer)
    for key, value in (facts or {}).items():
        writer.set_meta(key, value)


def check_alike(parts: Sequence[tuple[str, Recording]]) -> None:
    """Raise RecordingError, in one line, unless all are of the same torch, Mac and kind of device."""
    for key, what in _ALIKE:
        (first, one), *others = parts
        for name, other in others:
            if one.meta.get(key) != other.meta.get(key):
                raise RecordingError(
                    f"{first} and {name} cannot be joined: their {what} differs, "
                    f"{_short(one.meta.get(key))} and {_short(other.meta.get(key))}"
                )


def _short(value: object) -> str:
    text = str(value).partition(":")[0]
    return ascii(text)[1:-1][:80] if not text.isprintable() else text[:80]
