"""The prediction beside what `anymps bench` timed: both on a Mac, the prediction alone elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anymps._errors import CostError
from anymps._text import aligned, clean, duration, estimate
from anymps.forecast import Forecast, forecast

if TYPE_CHECKING:
    from anymps.record import Recording
    from anymps.timing import Timing

COLUMNS: Final = ("", "measured", "predicted", "80 % interval", "")
_NOT_COMPARED: Final = "is not compared: the times above are this machine's, not a Mac's."
_WORTH_A_WORD: Final = 0.1
"""Share of what was measured; parts that lie less apart say nothing."""
_PARTS: Final = {"queued": "the host's work, until it is queued", "device": "the GPU's work after that"}


@dataclass(frozen=True)
class Prediction:
    """A timing and what was predicted for it; `found` is None where nothing is, and `why` then says so in a sentence.

    Times in ns. What was timed waits for the device at its end, and so does what was predicted.
    """

    timing: Timing
    found: Forecast | None
    why: str = ""

    @property
    def told(self) -> Forecast | None:
        """The forecast, if it has a time."""
        return self.found if self.found is not None and not self.found.no_time else None

    @property
    def compared(self) -> Forecast | None:
        """The forecast, if the timing is a Mac's, and of the same release of torch."""
        found = self.told
        return found if found is not None and not self.timing.virtual and not found.made_by else None

    @property
    def held(self) -> bool | None:
        """Whether the median lies in the 80 % interval; None where nothing is compared."""
        found = self.compared
        return None if found is None else found.time.low <= 1e-9 * self.timing.median_ns <= found.time.high

    @property
    def parts(self) -> dict[str, tuple[float, float]]:
        """Measured and predicted ns until the host had queued the work, and of what the device did after that."""
        found = self.told
        if found is None or self.timing.calls != 1:
            return {}
        queued = 1e9 * _queued(found)
        rest = max(0.0, 1e9 * found.time.seconds - queued)
        return {
            "queued": (self.timing.queue_ns, queued),
            "device": (self.timing.median_ns - self.timing.queue_ns, rest),
        }

    @property
    def differs_most(self) -> str | None:
        """The part in which measured and predicted lie furthest apart; None where nothing is compared."""
        if self.compared is None or not self.parts:
            return None
        return max(self.parts, key=lambda name: abs(self.parts[name][0] - self.parts[name][1]))

    def to_json(self) -> dict[str, object]:
        """Everything as plain data; times in nanoseconds."""
        found = self.told
        time = found.time if found is not None else None
        parts = self.parts
        return {
            "name": self.timing.name,
            "mac": self.found.mac.name if self.found is not None else None,
            "predicted_ns": 1e9 * time.seconds if time is not None else None,
            "low_ns": 1e9 * time.low if time is not None else None,
            "high_ns": 1e9 * time.high if time is not None else None,
            "queued_ns": parts["queued"][1] if parts else None,
            "bound": time.bound if time is not None else None,
            "shares": [{"what": what, "ns": 1e9 * seconds} for what, seconds in time.shares]
            if time is not None
            else [],
            "measured_ns": self.timing.median_ns if self.compared is not None else None,
            "held": self.held,
            "differs_most": self.differs_most,
            "text": str(self),
        }

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Measured beside predicted, by `COLUMNS`; nothing where nothing is compared."""
        found = self.compared
        if found is None:
            return ()
        time = found.time
        about, span = estimate(time.seconds, time.low, time.high)
        both = (*_times(self.timing.median_ns), about)
        names = {"queued": "until queued", "device": "after that"}
        return (
            (clean(self.timing.name), *both, span, "held" if self.held else "not held"),
            *((f"  {names[part]}", *_times(*pair), "", "") for part, pair in self.parts.items()),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the rows come to; where nothing is compared, what is predicted, or why nothing is."""
        if self.found is None:
            return (f"no prediction: {self.why}",)
        if (found := self.compared) is not None:
            return tuple(self._compared(found))
        name = clean(self.timing.name)
        what = f"A {name}" if name.startswith("step of ") else name
        sentence = self.found.sentence.replace("A step", what)
        if self.told is None or not self.timing.virtual:
            return (sentence,)
        # The step that `anymps run` predicts includes no wait. Say so, because a reader may have both numbers.
        wait = "includes a wait for the GPU at the end, and " if self.timing.calls == 1 else ""
        return (f"{sentence} The prediction {wait}{_NOT_COMPARED}",)

    def __str__(self) -> str:
        return "\n".join([*(aligned([COLUMNS, *self.rows], (0, 4)) if self.rows else ()), *self.sentences])

    def _compared(self, found: Forecast) -> Iterator[str]:
        median = self.timing.median_ns
        ratio = 1e-9 * median / found.time.seconds
        as_told = "what" if f"{ratio:.2f}" == "1.00" else f"{ratio:.2f} times what"
        yield f"Measured is {as_told} was predicted for an {found.mac.name}, bound by {found.bound}."
        most = self.differs_most
        if most is not None and abs(self.parts[most][0] - self.parts[most][1]) >= _WORTH_A_WORD * median:
            seen, expected = self.parts[most]
            yield f"They differ most in {_PARTS[most]}: {_more_or_less(seen - expected)} than predicted."


def predict(timing: Timing, recording: Recording, torch: str = "") -> Prediction:
    """The typical step of a recording, predicted for the Mac that made it, or that the virtual device plays.

    `torch` is another release than the one that ran: then the prediction stands alone.
    """
    try:
        return Prediction(timing, forecast(recording, alone=timing.calls == 1, torch=torch))
    except CostError as error:
        return Prediction(timing, None, error.reason.removeprefix("no time can be predicted: "))


def _queued(found: Forecast) -> float:
    """Seconds until the host has queued the work: the last thing that it does is to wait for the device."""
    track = found.time.host_track
    return track[-2].end if len(track) > 1 else 0.0


def _more_or_less(difference: float) -> str:
    return f"{duration(abs(difference)) or '0'} {'more' if difference > 0 else 'less'}"


def _times(*nanoseconds: float) -> list[str]:
    return [duration(time) or "0" for time in nanoseconds]
