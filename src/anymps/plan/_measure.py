"""Runs a script on shapes, and reads what it did."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anymps._errors import PlanError
from anymps._paths import is_library
from anymps._text import error_words, first_line, last_line
from anymps.forecast import StepWork, step_work
from anymps.mac import Mac
from anymps.plan._scenario import Scenario
from anymps.plan._shapes import Shapes
from anymps.plan._trace import Kind, Trace
from anymps.record import EndingFacts, Flag, MemoryStory, Moment, Recording, RoundKind, Site
from anymps.record.format import Picked
from anymps.runs import Answer, Order, processor_limits, run

ASSUMED = "anymps::assumed."
"""How marks begin where the device answered with an assumed value (device/native/device/substrates/shape_compute.h)."""

_LAST_RAISED = Picked(
    condition=f"e.id = (SELECT MAX(id) FROM entries WHERE flags & {Flag.RAISED:d} "
    "AND id NOT IN (SELECT entry FROM refusals WHERE entry IS NOT NULL))"
)

_ROOMY_MAC = "M3 Ultra 512GB"  # whose largest buffer no script reaches: limits are for the replay

_ENDINGS = {
    "SIGKILL": "; the system does that when memory runs out, so this machine may be too small for this plan",
    "SIGSEGV": "; native code of a library crashed",
    "SIGBUS": "; native code of a library crashed",
    "SIGABRT": "; native code of a library gave up",
    "SIGILL": "; native code of a library is built for another processor",
}

_NETWORK_ERRORS = (
    *("URLError", "ConnectionError", "ConnectError", "gaierror", "MaxRetryError", "OfflineModeIsEnabled"),
    "LocalEntryNotFoundError",
)
_NETWORK_WORDS = (
    "We couldn't connect to 'https://huggingface.co'",  # transformers 4 and 5, utils/hub.py
    "outgoing traffic has been disabled",  # huggingface_hub, OfflineModeIsEnabled
    "offline mode is enabled",  # datasets and huggingface_hub
    "Name or service not known",
    "nodename nor servname provided",
    "Temporary failure in name resolution",
)
_REFUSED = ("Permission denied", "errno 13", "os error 13")  # the system's words, those of torch's zip writer, Rust's
_OF_AN_OPERATOR = ("RuntimeError", "IndexError")

_CLOSURES = f"""
SELECT COUNT(*) FROM rounds o JOIN rounds b ON b.start_ns >= o.start_ns AND b.end_ns <= o.end_ns
WHERE o.kind = {RoundKind.OPTIMIZER:d} AND b.kind = {RoundKind.BACKWARD:d} GROUP BY o.id
"""

BATCH = "{batch}"
SEQUENCE = "{sequence}"
"""What in the script's arguments stands for the batch size and the sequence length."""


class Stopped(PlanError):
    """The script stopped on shapes alone; `what` is its own error without what that means for a Mac."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


@dataclass(frozen=True)
class Assumption:
    """A place where the script wanted a value that a plan does not have, and how often."""

    what: str
    file: str
    line: int
    source: str
    count: int


@dataclass(frozen=True)
class Dropped:
    """Files that a script wrote, and that it removed, by their full names: on disk they are as they were."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One run of the script on shapes.

    `batch` and `sequence` are those of the scenario, else what the script uses itself: sizes in its first data loader's
    batches.
    """

    scenario: Scenario
    story: MemoryStory
    steps: int
    batch: int | None
    sequence: int | None
    assumptions: tuple[Assumption, ...]
    without_effect: str = ""
    """Why the scenario changed nothing; empty where it did."""
    dropped: Dropped = Dropped()
    """What it wrote, which is no longer there."""
    limit: float | None = None
    """The seconds after which it was ended; None if it ended itself."""
    loop: Site | None = None
    """The loop without an optimizer whose rounds ended it; None where there was none."""
    last_batch: int | None = None
    """Samples in the last batch of its data loaders."""
    kind: Kind = Kind.OTHER
    """What the model reads."""
    work: StepWork | None = None
    """What its typical step does; None without a complete step."""
    closures: tuple[int, int] = (0, 0)
    """The fewest and the most backwards that an optimizer ran within one step of its own, as LBFGS does."""
    retries: bool = False
    """Whether its code tells of what to do where memory runs out."""
    adapters: int = 0
    """Linear layers with quantised weights for which the scenario assumes LoRA adapters."""

    @property
    def peak(self) -> Moment:
        """When its memory was highest: a run that allocates nothing is not measured."""
        assert self.story.peak is not None
        return self.story.peak

    @property
    def rounds_differ(self) -> bool:
        """Whether the rounds of its loop, the first apart, make buffers of different sizes: a cache grows, say."""
        made: dict[int, list[int]] = {}
        for one in self.story.allocations:
            if 0 < one.step < self.steps:
                made.setdefault(one.step, []).append(one.requested)
        sizes = [sorted(made.get(step, ())) for step in range(1, self.steps)]
        return any(later != sizes[0] for later in sizes)

    @property
    def trace(self) -> Trace:
        """Its allocations."""
        return Trace.of(self.story, self.kind)


def measure(order: Order, scenario: Scenario, limits: Mac | None = None) -> Measured:
    """Run a script for a few optimizer steps on shapes, within the order's limits.

    With `limits` its memory ends where that of a Mac does. Raises PlanError, in one line, if the script fails, or has
    done nothing on mps in its time.
    """
    words = tuple(_fill_in(word, scenario) for word in order.words)
    mac = limits.name if limits is not None else _ROOMY_MAC
    unlimited = None if limits is not None else "0.0"
    measurement = replace(
        order,
        words=words,
        device=replace(order.device, mac=mac, require="virtual", substrate="shape", start_method="system"),
        seeded=False,
        observer=Shapes(scenario, placed=words != order.words),
        environment={
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO": unlimited,
            "PYTORCH_MPS_LOW_WATERMARK_RATIO": unlimited,
            # A plan downloads nothing: a model that needs it says so at once.
            "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
        },
    )
    with run(measurement) as answer:
        if answer.status is not None and answer.status < 0:
            raise _killed(-answer.status)
        if not answer.recording.exists():
            raise PlanError(f"anymps: the plan could not start: {last_line(answer.errors)}")
        with Recording.open(answer.recording) as opened:
            return _read(opened, scenario, answer, order.seconds if answer.status is None else None)


def _fill_in(word: str, scenario: Scenario) -> str:
    for name, value in ((BATCH, scenario.batch), (SEQUENCE, scenario.sequence)):
        if name in word:
            if value is None:
                raise PlanError(
                    f"anymps: the arguments contain {name}: give its value with --what-if or --{name[1:-1]}"
                )
            word = word.replace(name, str(value))
    return word


def _killed(number: int) -> Stopped:
    """The process was ended by a signal."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    why = _ENDINGS.get(name, "")
    if name == "SIGXCPU":
        why = f"; it reached the limit of processor time, {processor_limits()[0]} s (ulimit -t)"
    what = f"its process was ended by {name}{why}"
    return Stopped(f"anymps: the script stopped: {what}", what)


def _read(recording: Recording, scenario: Scenario, answer: Answer, limit: float | None) -> Measured:
    known = answer.noted
    if known.get("unrecorded"):
        raise PlanError(f"anymps: cannot save the measurement: {known['unrecorded']}; set TMPDIR to another folder")
    ending = recording.run.ending
    story = recording.memory_story
    if limit is None and (ending.status or ending.exception):
        what = error_words(ending.exception, ending.message) if ending.exception else f"exit status {ending.status}"
        if not ending.exception and answer.errors:
            what += f"; it last printed: {last_line(answer.errors)}"
        raise _stopped(ending, recording, what, _place_of(known.get("trail", ())))
    if story.peak is None:
        raise PlanError(
            f"anymps: the script did nothing on mps within {limit:g} s; it must choose the device itself"
            if limit is not None
            else "anymps: the script made nothing on mps; it must choose the device itself"
        )
    assumptions = tuple(
        Assumption(use.operator.removeprefix(ASSUMED), use.site.file, use.site.line, use.site.source, use.count)
        for use in recording.marks(ASSUMED)
    )
    return Measured(
        scenario=scenario,
        story=story,
        steps=recording.complete_steps,
        batch=scenario.batch or known.get("batch"),
        sequence=scenario.sequence or known.get("sequence"),
        assumptions=assumptions,
        without_effect=str(known.get("without_effect", "")),
        dropped=Dropped(tuple(known.get("written", ())), tuple(known.get("removed", ()))),
        limit=limit,
        loop=Site(*known["loop"]) if known.get("loop") else None,
        last_batch=known.get("last_batch"),
        kind=Kind.TOKENS if known.get("embeds") else Kind.OTHER,
        retries=bool(known.get("retries")),
        work=step_work(recording),
        closures=_closures(recording),
        adapters=known.get("adapters", 0),
    )


def _closures(recording: Recording) -> tuple[int, int]:
    counts = [count for (count,) in recording.stream(_CLOSURES)]
    return (min(counts), max(counts)) if counts else (0, 0)


def _stopped(ending: EndingFacts, recording: Recording, what: str, place: str) -> Stopped:
    """What stopped the script, where, and what that means for a Mac, in one line."""
    message = ending.message
    at = f" at {place}" if place else ""
    if ending.exception in _NETWORK_ERRORS or any(words in message for words in _NETWORK_WORDS):
        needs = f"anymps: the script needs the network{at}, but a plan downloads nothing: {what}"
        return Stopped(f"{needs}; run it once with a network, or use files on this machine", f"{what}{at}")
    remark = _remark(ending, recording)
    return Stopped(f"anymps: the script stopped in a shapes-only run{at}: {what}{remark}", f"{what}{at}")


def _remark(ending: EndingFacts, recording: Recording) -> str:
    """What an error that stopped the script means for a Mac, or for the plan."""
    message = ending.message
    if ending.exception == "PermissionError" or any(words in message for words in _REFUSED):
        return " (a plan keeps programs and libraries from writing; --allow-writes lets them)"
    if "not compiled with CUDA" in message:
        return " (a Mac raises this too: anymps fix ports the script, and --cuda-as-mps plans it as it is)"
    first = first_line(message)
    if first and any(first_line(refusal.message) == first for refusal in recording.refusals()):
        return " (a Mac raises this too)"
    if assumed := recording.marks(ASSUMED):
        read = f"{os.path.basename(assumed[-1].site.file)}:{assumed[-1].site.line}"
        return (
            f"; it read a value that a plan does not have ({read}), so the script may not be at fault: plan the part "
            "that does not need it"
        )
    raised = recording.occurrences(_LAST_RAISED) if ending.exception in _OF_AN_OPERATOR else []
    return f" (of {raised[0].operator}; a Mac stops there too, perhaps with another message)" if raised else ""


def _place_of(trail: Sequence[tuple[str, int]]) -> str:
    """`train.py:12`, the program's own line that an exception passed last; of a library's where it has none."""
    own = [(file, line) for file, line in trail if not is_library(file)] or list(trail)
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""
