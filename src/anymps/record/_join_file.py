"""Joining recordings into a file that appears whole or not at all, and what cannot be joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from anymps._errors import RecordingError
from anymps.record._join import join
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
    beside = path.with_name(f"{path.name}.joining") if path is not None else None
    try:
        with RecordingWriter(beside, {}) as writer:
            join(parts, writer)
            for key, value in (facts or {}).items():
                writer.set_meta(key, value)
        if path is None or beside is None:
            return writer.recording()
        try:
            beside.replace(path)
        except OSError as error:
            raise RecordingError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if beside is not None:
            for ending in ("", "-wal", "-shm"):
                beside.with_name(beside.name + ending).unlink(missing_ok=True)
    for ending in ("-wal", "-shm"):  # of an older recording there that was cut short
        path.with_name(path.name + ending).unlink(missing_ok=True)
    return Recording.open(path)


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
