"""The capture of a run whose program runs in a notebook's kernel, by what the kernel reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anymps._errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from anymps.record import Recording


class KernelCapture:
    """Stands for the capture that runs in the kernel: what a session asks of one, as the kernel has told it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.told: Mapping[str, Any] = {}

    @property
    def recording(self) -> Recording:
        """The file that the kernel wrote."""
        from anymps.record import Recording

        return Recording.open(self._path)

    @property
    def failure(self) -> RecordingError | None:
        """Why the recording ended before the run did."""
        return RecordingError(self.told["failure"]) if self.told.get("failure") else None

    @property
    def has_begun(self) -> bool:
        """Whether anything could be recorded."""
        return bool(self.told.get("has_begun", True))

    @property
    def steps_seen(self) -> int:
        """The steps of the optimizer, where only a part is recorded."""
        return int(self.told.get("steps_seen", 0))

    def note_fact(self, key: str, value: object) -> None:
        """Nothing: the kernel notes its own."""

    def close(self, ending: Mapping[str, object]) -> None:
        """Nothing: the kernel closes it, and says in it how the notebook ended."""
