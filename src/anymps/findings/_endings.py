"""How the recorded run ended, for findings and for the verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from anymps._text import error_words
from anymps.record import NOWHERE, Recording, Refusal, RefusalKind, Site

SPAWNING: Final = ("", "spawn", "forkserver")
"""How processes start that import the script again; the empty one is whatever the system does, on a Mac spawn."""
NOT_SENT: Final = re.compile(r"Can't (?:pickle|get local object)")
"""Of pickle, Python 3.10 to 3.14."""
_KERNEL_LIMITS: Final = (
    re.compile(
        r"error: (number of constant buffers exceeds maximum supported \(31\)|no 'buffer' resource location available "
        r"for '\w+')"
    ),
    re.compile(r"(Threadgroup memory size \(\d+\) exceeds the maximum threadgroup memory allowed \(\d+\))"),
)


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
    facts = recording.run.ending
    name = facts.exception
    cut = "" if recording.complete else "The recording stops in the middle of the run"
    if name and name != "KeyboardInterrupt":
        return Ending(name, facts.message, facts.place.site, facts.raised_by, cut, facts.process, facts.compared)
    if cut:
        return Ending(early=cut)
    if name:
        return Ending(early="Ctrl-C ended the run")
    if facts.how.startswith("SIG"):
        return Ending(early=f"{facts.how} ended the run")
    return Ending(early=f"The script exited with {facts.status}" if facts.status else "")


def kernel_limit(message: str) -> str:
    """Metal's error for a kernel that exceeds a limit of Apple's GPUs; empty for any other exception."""
    return next((said[1] for said in (limit.search(message) for limit in _KERNEL_LIMITS) if said), "")


def ending_messages(recording: Recording) -> tuple[str, ...]:
    """The messages of the exceptions that nothing caught: the run's, and in a joined recording each process's."""
    endings = (recording.run.ending, *(part.ending for part in recording.parts))
    return tuple(dict.fromkeys(ended.message for ended in endings if ended.message))


def ending_refusal(recording: Recording) -> Refusal | None:
    """What MPS refused if that ended the run: the last refusal, if its error is the one that nothing caught."""
    ended = ending(recording)
    raised = [
        refusal for refusal in recording.refusals() if refusal.kind is not RefusalKind.INDEX or refusal.origin.known
    ]
    if not ended.exception or not raised or raised[-1].error != ended.exception:
        return None
    return raised[-1] if raised[-1].message in (ended.message or raised[-1].message) else None
