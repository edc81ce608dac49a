"""One run: asks each kind in separate processes, within its time, and saves the answers after each of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from anymps._errors import EnableError
from anymps._own_process import own_worker
from anymps._settings import variable_of
from anymps.verify._answers import Answers
from anymps.verify._kinds import KINDS, Kind
from anymps.verify._private import without_private
from anymps.verify._supervised import Ended, listen

START_PATIENCE: Final = 300.0
"""Seconds for a process to start, in which it may compile the virtual device."""
_BETWEEN: Final = 120.0
_MOST_STARTS: Final = 500
_LEAST: Final = 1.0
"""Seconds for which no process is started."""
_KEPT_EVERY: Final = 30.0
_WORKER: Final = "anymps.verify._worker"

Tell = Callable[[str], None]
Keep = Callable[[Answers], None]


@dataclass
class _Progress:
    """Where one kind stands."""

    kind: Kind
    start: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    cases: int = 0
    at: tuple[int, str] | None = None
    finished: bool = False


class _Run:
    """The answers so far, and who hears of them."""

    def __init__(self, mac: str | None, tell: Tell, keep: Keep, worker: Sequence[str]) -> None:
        self.answers = Answers(False, {}, date.today().isoformat())
        self._mac, self._tell, self._keep, self._worker = mac, tell, keep, worker
        self._kept = time.monotonic()
        self._known = False
        self._asked: dict[str, _Progress] = {}

    def is_finished(self, kind: Kind) -> bool:
        """Whether all cases of a kind were asked, or no more can be."""
        return kind.name in self._asked and self._asked[kind.name].finished

    def ask(self, kind: Kind, seconds: float, wanted: Sequence[str] | None) -> None:
        """Ask the cases of one kind, each process going on behind the case in which the last one ended.

        A kind that ran out of time before goes on where it was.
        """
        begun = time.monotonic()
        deadline = begun + seconds
        progress = self._asked.setdefault(kind.name, _Progress(kind))
        self.answers.answers.setdefault(kind.name, {})
        about = self.answers.kinds.setdefault(kind.name, {"cases": 0, "seconds": 0.0, "note": ""})
        if seconds < _LEAST:
            about["note"] = about["note"] or "no time left"
            return
        spent = about["seconds"]
        for _ in range(_MOST_STARTS):
            left = max(deadline - time.monotonic(), 0.0)
            job = {"kind": kind.name, "start": progress.start, "seconds": left, "mac": self._mac, "wanted": wanted}
            progress.at = None
            ended = listen(
                self._worker,
                {**_environment(), **kind.environment, **progress.environment},
                json.dumps(job),
                lambda message: self._hear(message, progress),
                START_PATIENCE,
            )
            self._close(ended, progress)
            about["seconds"] = round(spent + time.monotonic() - begun, 1)
            if progress.finished or time.monotonic() >= deadline:
                break
        if not progress.finished:
            about["note"] = "; ".join(filter(None, (str(about["note"]), "ran out of time; --minutes allows more")))
        self._keep(self.answers)

    def _hear(self, message: dict[str, Any], progress: _Progress) -> float | None:
        if "hello" in message:
            about = message["hello"]
            self.answers.virtual, self.answers.machine = about["virtual"], about["machine"]
            self.answers.kinds[progress.kind.name] |= {"cases": message["cases"], "note": message["note"]}
            progress.cases, self._known = message["cases"], True
            return _BETWEEN
        if "begin" in message:
            progress.at = (message["begin"], message["case"])
            return float(message["patience"])
        if "done" in message:
            assert progress.at is not None
            self._take(progress, message["answer"])
            return _BETWEEN
        if "again" in message:
            progress.start, progress.environment = message["again"], message["environment"]
        elif "end" in message:
            progress.finished = True
        return None

    def _take(self, progress: _Progress, answer: dict[str, Any]) -> None:
        assert progress.at is not None
        number, case = progress.at
        progress.at, progress.start = None, number + 1
        of_kind = self.answers.answers[progress.kind.name]
        of_kind[case] = without_private(answer)
        self._tell(f"{progress.kind.name}: {number + 1} of {progress.cases}")
        if time.monotonic() - self._kept > _KEPT_EVERY:
            self._keep(self.answers)
            self._kept = time.monotonic()

    def _close(self, ended: Ended, progress: _Progress) -> None:
        """A case in which its process ended has that for an answer. Raises EnableError if there is no device at all."""
        if ended.how == "exit":
            return
        if progress.at is None:
            if not self._known:
                raise EnableError(f"anymps: the device could not be started: {ended.words}")
            progress.finished = True
            self.answers.kinds[progress.kind.name]["note"] = f"stopped between two cases: {ended.words}"
            return
        words = ended.words if ended.how == "hang" else f"exit status {ended.status}: {ended.words}"
        does = "hangs" if ended.how == "hang" else "crashes"
        answer: dict[str, Any] = {"does": does, "text": words}
        self._take(progress, {**answer, "shows": True} if progress.kind.name == "faults" else answer)
        progress.environment = {}


def ask(
    kinds: Sequence[str],
    minutes: float,
    *,
    mac: str | None = None,
    wanted: Mapping[str, Sequence[str]] | None = None,
    tell: Tell = lambda line: None,
    keep: Keep = lambda answers: None,
    worker: Sequence[str] = (),
) -> Answers:
    """Ask the device of this machine, `kinds` in the order of `KINDS`, for about so many minutes.

    A kind that is done early leaves its time to the next. Before the last kind, those that ran out of time go on where
    they were, as long as the last one keeps its share. `mac` is what the virtual device plays; `wanted` restricts the
    cases of a kind. `tell` hears one line after each case; `keep` is given the answers so far, every few seconds.
    `worker` is the command of a process that does a job of `_worker`, for tests.
    Raises EnableError if there is no device.
    """
    run = _Run(mac, tell, keep, worker or own_worker(_WORKER))
    end = time.monotonic() + 60 * minutes
    todo = [kind for kind in KINDS.values() if kind.name in kinds]

    def ask_one(kind: Kind, among: Sequence[Kind], reserved: float = 0.0) -> None:
        left = max(end - reserved - time.monotonic(), 0.0)
        share = kind.share / sum(other.share for other in among)
        run.ask(kind, left * share, None if wanted is None else list(wanted.get(kind.name, ())))

    try:
        for number, kind in enumerate(todo[:-1]):
            ask_one(kind, todo[number:])
        for last in todo[-1:]:
            reserved = 60 * minutes * last.share / sum(kind.share for kind in todo)
            again = [kind for kind in todo[:-1] if not run.is_finished(kind)]
            for number, kind in enumerate(again):
                ask_one(kind, again[number:], reserved)
            ask_one(last, [last])
    except KeyboardInterrupt:
        if run.answers.count:
            keep(run.answers)
        raise
    return run.answers


def _environment() -> dict[str, str]:
    """This process's, without what would make the device answer otherwise.

    With one order of sets of strings: torch's database draws its samples of `meshgrid` in it.
    """
    changes = ("PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_MPS_", "PYTORCH_DEBUG_MPS", variable_of("mac"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(changes)}
    return {**kept, "PYTHONHASHSEED": "0"}
