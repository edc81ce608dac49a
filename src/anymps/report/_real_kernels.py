"""The share of a run that PyTorch's own kernels computed (`--kernels real`), and how exact that is."""

from __future__ import annotations

from dataclasses import dataclass

from anymps._text import OWN_KERNELS, kernels_of
from anymps.record import Fate, Recording
from anymps.report._text import percent, plural

_WORTH = (
    "the same kernel code as the Mac, up to what Apple's driver does with exp, log, sin and division, and to the order "
    "inside a simd group"
)


@dataclass(frozen=True)
class RealShare:
    """Calls that PyTorch's own kernels have computed, by operator, and how many calls mps had, views and copies too.

    `kernels` is what a sentence calls the kernels.
    """

    operators: dict[str, int]
    of: int
    kernels: str = OWN_KERNELS

    @property
    def calls(self) -> int:
        """Of all operators."""
        return sum(self.operators.values())

    @property
    def in_short(self) -> str:
        """`PyTorch's own kernels computed 310 of 1,024 calls on mps (30 %).`."""
        if not self.of:
            return f"No calls ran on mps, so {self.kernels} computed none."
        share = percent(self.calls, self.of)
        computed = f"{self.kernels[0].upper()}{self.kernels[1:]} computed {self.calls:,}"
        return f"{computed} of {plural(self.of, 'call')} on mps" + (f" ({share})." if share else ".")

    @property
    def in_full(self) -> str:
        """The same, with what a result of theirs is."""
        if not self.of:
            return self.in_short
        return f"{self.in_short} That is {self._worth}. This machine's CPU computed the others."

    @property
    def _worth(self) -> str:
        return _WORTH if self.kernels == OWN_KERNELS else _WORTH.replace("the Mac", "a Mac with that release")


def real_share(recording: Recording) -> RealShare | None:
    """The share of a recording; None if the run had no such kernels, or its end was not recorded."""
    counted = recording.meta.get("real_calls")
    if not isinstance(counted, dict):
        return None
    operators = {str(name): count for name, count in counted.items() if isinstance(count, int)}
    of = sum(use.count for use in recording.operators() if use.fate is Fate.NATIVE)
    release, torch = (str(recording.meta.get(name) or "") for name in ("kernels_torch", "torch_version"))
    return RealShare(operators, of, kernels_of(release, torch))


def real_object(recording: Recording) -> dict[str, object] | None:
    """The share for a program."""
    share = real_share(recording)
    if share is None:
        return None
    release = recording.meta.get("kernels_torch") or None
    return {"torch": release, "calls": share.calls, "of": share.of, "operators": dict(sorted(share.operators.items()))}
