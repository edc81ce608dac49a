"""The prediction beside what `anymps bench` timed: both on a Mac, the prediction alone elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anymps._errors import CostError
from anymps._text import aligned, clean, duration, estimate
from anymps.forecast import Forecast, forecast

if TYPE_CHECKING:
    from anymps.record import Recording
    from anymps.timing import Timing

_COLUMNS: Final = ("", "measured", "predicted", "80 % interval", "")
_NOT_COMPARED: Final = "is not compared: the times above are this machine's, not a Mac's."


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

    def to_json(self) -> dict[str, object]:
        """Everything as plain data; times in nanoseconds."""
        found = self.told
        time = found.time if found is not None else None
        return {
            "name": self.timing.name,
            "mac": self.found.mac.name if self.found is not None else None,
            "predicted_ns": 1e9 * time.seconds if time is not None else None,
            "low_ns": 1e9 * time.low if time is not None else None,
            "high_ns": 1e9 * time.high if time is not None else None,
            "bound": time.bound if time is not None else None,
            "shares": [{"what": what, "ns": 1e9 * seconds} for what, seconds in time.shares]
            if time is not None
            else [],
            "measured_ns": self.timing.median_ns if self.compared is not None else None,
            "held": self.held,
            "text": str(self),
        }

    def __str__(self) -> str:
        """Measured beside predicted; where nothing is compared, what is predicted, or why nothing is."""
        if self.found is None:
            return f"no prediction: {self.why}"
        name = clean(self.timing.name)
        if (found := self.compared) is not None:
            time, median = found.time, self.timing.median_ns
            about, span = estimate(time.seconds, time.low, time.high)
            row = name, duration(median) or "0", about, span, "held" if self.held else "not held"
            ratio = f"{1e-9 * median / time.seconds:.2f}"
            as_told = "what" if ratio == "1.00" else f"{ratio} times what"
            told = f"Measured is {as_told} was predicted for an {found.mac.name}, bound by {found.bound}."
            return "\n".join((*aligned([_COLUMNS, row], (0, 4)), told))
        what = f"A {name}" if name.startswith("step of ") else name
        sentence = self.found.sentence.replace("A step", what)
        if self.told is None or not self.timing.virtual:
            return sentence
        # The step that `anymps run` predicts includes no wait. Say so, because a reader may have both numbers.
        wait = "includes a wait for the GPU at the end, and " if self.timing.calls == 1 else ""
        return f"{sentence} The prediction {wait}{_NOT_COMPARED}"


def predict(timing: Timing, recording: Recording, torch: str = "") -> Prediction:
    """The typical step of a recording, predicted for the Mac that made it, or that the virtual device plays.

    `torch` is another release than the one that ran: then the prediction stands alone.
    """
    try:
        return Prediction(timing, forecast(recording, alone=timing.calls == 1, torch=torch))
    except CostError as error:
        return Prediction(timing, None, error.reason.removeprefix("no time can be predicted: "))
