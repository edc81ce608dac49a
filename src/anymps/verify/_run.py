"""One run: asks each kind in separate processes, within the time, and saves the answers on the way."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from anymps._errors import EnableError
from anymps._own_process import own_call
from anymps._settings import variable_of
from anymps.verify._answers import Answers
from anymps.verify._kinds import KINDS, Kind
from anymps.verify._private import without_private
from anymps.verify._supervised import Ended, listen

START_PATIENCE: Final = 300.0
"""Seconds for a process to start, in which it may compile the virtual device."""
_PATIENCE: Final = 90.0
"""Seconds without a message, after which a case hangs."""
_LEAST: Final = 1.0
"""Seconds for which no further process is started."""
_KEPT_EVERY: Final = 30.0
_WORKER: Final = "anymps.verify._worker:main"

Tell = Callable[[Kind], None]
Keep = Callable[[Answers], None]


@dataclass
class _Progress:
    """Where one kind stands."""

    kind: Kind
    wanted: Sequence[str] | None
    start: int = 0
    cases: int = 0
    at: tuple[int, str] | None = None
    finished: bool = False


class _Run:
    """The answers so far, and who hears of them."""

    def __init__(self, mac: str | None, tell: Tell, keep: Keep, worker: Sequence[str]) -> None:
        self.answers = Answers(False, {}, date.today().isoformat())
        self._mac, self._tell, self._keep, self._worker = mac, tell, keep, worker
        self._kept = time.monotonic()

    def ask(self, progress: _Progress, seconds: float) -> None:
        """Ask cases of one kind, each process going on behind the case in which the last one ended."""
        self._tell(progress.kind)
        deadline = time.monotonic() + seconds
        while True:
            left = 0.0 if progress.kind.alone else max(deadline - time.monotonic(), 0.0)
            about = {"kind": progress.kind.name, "start": progress.start, "wanted": progress.wanted}
            progress.at = None
            ended = listen(
                self._worker,
                {**_environment(), **progress.kind.environment},
                json.dumps({**about, "seconds": left, "mac": self._mac}),
                lambda message: self._hear(message, progress),
                START_PATIENCE,
            )
            self._close(ended, progress)
            if progress.finished or time.monotonic() >= deadline:
                break
        self._keep(self.answers)

    def _hear(self, message: dict[str, Any], progress: _Progress) -> float | None:
        if "hello" in message:
            about = message["hello"]
            self.answers.virtual, self.answers.machine = about["virtual"], about["machine"]
            self.answers.kinds[progress.kind.name] = {"cases": message["cases"], "note": message["note"]}
            progress.cases = message["cases"]
            return _PATIENCE
        if "begin" in message:
            progress.at = (message["begin"], message["case"])
            return _PATIENCE
        if "done" in message:
            assert progress.at is not None
            self._take(progress, message["answer"])
            return _PATIENCE
        progress.finished = "end" in message
        return None

    def _take(self, progress: _Progress, answer: dict[str, Any]) -> None:
        assert progress.at is not None
        number, case = progress.at
        progress.at, progress.start = None, number + 1
        of_kind = self.answers.answers[progress.kind.name]
        of_kind[case] = without_private(answer)
        if time.monotonic() - self._kept > _KEPT_EVERY:
            self._keep(self.answers)
            self._kept = time.monotonic()

    def _close(self, ended: Ended, progress: _Progress) -> None:
        """A case in which its process ended has that for an answer. Raises EnableError if there is no device at all."""
        if ended.how == "exit":
            return
        if progress.at is None:
            if not self.answers.machine:
                raise EnableError(f"anymps: the device could not be started: {ended.words}")
            progress.finished = True
            self.answers.kinds[progress.kind.name]["note"] = f"stopped between two cases: {ended.words}"
            return
        words = ended.words if ended.how == "hang" else f"exit status {ended.status}: {ended.words}"
        does = "hangs" if ended.how == "hang" else "crashes"
        self._take(progress, {"does": does, "text": words})


def ask(
    kinds: Sequence[str],
    minutes: float,
    *,
    mac: str | None = None,
    wanted: Mapping[str, Sequence[str]] | None = None,
    tell: Tell = lambda kind: None,
    keep: Keep = lambda answers: None,
    worker: Sequence[str] = (),
) -> Answers:
    """Ask the device of this machine, `kinds` in the order of `KINDS`, for about so many minutes.

    Each kind may take half of the time that is left. Then those that are not finished go on where they were, until the
    time is up. One case is asked whatever the time. `mac` is what the virtual device plays; `wanted` restricts the
    cases of a kind. `tell` hears which kind is asked now; `keep` is given the answers so far, every few seconds.
    `worker` is the command of a process that does a job of `_worker`, for tests.
    Raises EnableError if there is no device.
    """
    run = _Run(mac, tell, keep, worker or own_call(_WORKER))
    end = time.monotonic() + 60 * minutes
    todo = [
        _Progress(kind, None if wanted is None else list(wanted.get(kind.name, ())))
        for kind in KINDS.values()
        if kind.name in kinds
    ]
    for progress in todo:
        run.answers.kinds[progress.kind.name] = {"cases": 0, "note": ""}
        run.answers.answers[progress.kind.name] = {}
    try:
        while left := [progress for progress in todo if not progress.finished]:
            for progress in left:
                seconds = max(end - time.monotonic(), 0.0)
                if seconds >= _LEAST or not run.answers.machine:
                    others = any(not other.finished for other in todo if other is not progress)
                    run.ask(progress, seconds / 2 if others else seconds)
            if end - time.monotonic() < _LEAST:
                break
    except KeyboardInterrupt:
        if run.answers.count:
            keep(run.answers)
        raise
    for progress in todo:
        if not progress.finished:
            about = run.answers.kinds[progress.kind.name]
            late = "ran out of time" if progress.cases else "no time left"
            about["note"] = "; ".join(filter(None, (str(about["note"]), f"{late}; --minutes allows more")))
    return run.answers


def _environment() -> dict[str, str]:
    """This process's, without what would make the device answer otherwise.

    With one order of sets of strings: torch's database draws its samples of `meshgrid` in it.
    """
    changes = ("PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_MPS_", "PYTORCH_DEBUG_MPS", variable_of("mac"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(changes)}
    return {**kept, "PYTHONHASHSEED": "0"}
