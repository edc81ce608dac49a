"""How the recorded run ended, for findings and for the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from anymps._text import error_words
from anymps.record import Recording, Refusal, RefusalKind, Site

NOWHERE = Site("", 0)


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    `exception` and `message` are of the exception that nothing caught, empty without one and for Ctrl-C; `site` is the
    program's line that it came from, `raised_by` who raised it: `torch`, `program` or, where that is not known, empty.
    `process` is the name of the one that it ended, where a process that the script started made the script fail.
    `compared` is the comparison that the program raised by, if it takes `mps:0` for another device than `mps`.
    `early` says in words why the recording may not hold the whole of the run's work, apart from an exception.
    """

    exception: str = ""
    message: str = ""
    site: Site = NOWHERE
    raised_by: str = ""
    early: str = ""
    process: str = ""
    compared: str = ""

    @property
    def words(self) -> str:
        """`TypeError: what it says`, the first line alone."""
        return error_words(self.exception, self.message)


def ending(recording: Recording) -> Ending:
    """How the run of a recording ended."""
    facts = recording.meta.get("ending")
    facts = facts if isinstance(facts, dict) else {}
    # `error` was written by 0.1.0 for a `with anymps.record():` block.
    name, _, said = str(facts.get("error", "")).partition(": ")
    name, message = str(facts.get("exception", name)), str(facts.get("message", said))
    process = str(facts.get("process", ""))
    interrupted = name == "KeyboardInterrupt"
    if name and not interrupted:
        raised_by = str(facts.get("raised_by", ""))
        compared = str(facts.get("compared", ""))
        return Ending(name, message, _site(facts.get("place")), raised_by, _cut(recording), process, compared)
    how, status = str(facts.get("how", "")), facts.get("status", 0)
    if not recording.complete:
        return Ending(early=_cut(recording))
    if interrupted:
        return Ending(early="Ctrl-C ended the run")
    if how.startswith("SIG"):
        return Ending(early=f"{how} ended the run")
    return Ending(early=f"The script ended with status {status}" if status else "")


def ending_messages(recording: Recording) -> tuple[str, ...]:
    """The messages of the exceptions that nothing caught: the run's, and in a joined recording each process's."""
    parts = recording.meta.get("parts")
    processes = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    endings = (facts.get("ending") for facts in (recording.meta, *processes))
    messages = (str(facts.get("message", "")) for facts in endings if isinstance(facts, dict))
    return tuple(dict.fromkeys(message for message in messages if message))


def ending_refusal(recording: Recording) -> Refusal | None:
    """What MPS refused if that ended the run: the last refusal, if its error is the one that nothing caught."""
    ended = ending(recording)
    raised = [
        refusal for refusal in recording.refusals() if refusal.kind is not RefusalKind.INDEX or refusal.origin.known
    ]
    if not ended.exception or not raised or raised[-1].error != ended.exception:
        return None
    return raised[-1] if raised[-1].message in (ended.message or raised[-1].message) else None


def _cut(recording: Recording) -> str:
    return "" if recording.complete else "The recording stops in the middle of the run"


def _site(place: object) -> Site:
    if not isinstance(place, dict) or not isinstance(place.get("line"), int):
        return NOWHERE
    return Site(str(place.get("file", "")), place["line"], str(place.get("function", "")), str(place.get("source", "")))
