"""The recording of a session with pytest-xdist: each worker writes a part, and they are joined when all have ended."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from anymps._errors import RecordingError
from anymps.record import Recording, RecordingWriter, join, remove_recording

_WHERE, _DETAIL = "anymps_recording", "anymps_detail"


class Parts:
    """Where pytest was started. The parts lie beside the recording, `run.gw0.anymps` beside `run.anymps`."""

    def __init__(self, path: Path, detail: int) -> None:
        """Take the place at once; `detail` is how many calls all parts together may keep one by one.

        Raises RecordingError if nothing can be recorded there.
        """
        self._path = path
        self._detail = detail
        self._paths: dict[str, Path] = {}
        self._writer = RecordingWriter(path, {})

    def begin(self, node: Any) -> None:
        """Tell a worker that is about to start where to record. One that takes the place of another has a new name."""
        name = node.workerinput["workerid"]
        path = self._paths[name] = self._path.with_name(f"{self._path.stem}.{name}{self._path.suffix}")
        self._forget(path)
        node.workerinput[_WHERE] = str(path)
        node.workerinput[_DETAIL] = self._detail // max(1, node.workerinput["workercount"])

    def _forget(self, path: Path) -> None:
        """A part of an earlier session, which was killed, must not be taken for this worker's if it leaves none."""
        with suppress(RecordingError, OSError):
            Recording.open(path).close()
            remove_recording(path)

    def join(self, status: int, suite: dict[str, object]) -> list[str]:
        """Make one recording of all, with `suite`; what went wrong, one line each. A part that cannot be read stays.

        Raises RecordingError if nothing could be made; then all parts stay.
        """
        lost: list[str] = []
        with ExitStack() as stack:
            opened = {name: stack.enter_context(part) for name in self._paths if (part := self._open(name, lost))}
            join(opened.items(), self._writer)
            facts = {"script": "pytest", "arguments": sys.argv[1:], "ending": {"status": status}, "suite": suite}
            for key, value in facts.items():
                self._writer.set_meta(key, value)
            self._writer.close()
        for name in opened:
            remove_recording(self._paths[name])
        return lost

    def _open(self, name: str, lost: list[str]) -> Recording | None:
        try:
            return Recording.open(self._paths[name])
        except RecordingError as error:
            lost.append(f"the recording of worker {name} is missing: {error}")
            return None


def of_worker(workerinput: dict[str, Any]) -> tuple[Path | None, int]:
    """In a worker: where to record, if at all, and how many calls to keep one by one."""
    path = workerinput.get(_WHERE)
    return (Path(path) if path is not None else None), workerinput.get(_DETAIL, 0)
