"""The share of a run that PyTorch's own kernels computed (`--kernels real`), and how exact that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anymps._text import OWN_KERNELS, kernels_of
from anymps.findings import Story
from anymps.record import Fate
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

    operators: Mapping[str, int]
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


def real_share(story: Story) -> RealShare | None:
    """The share of a recording; None if the run had no such kernels, or its end was not recorded."""
    if story.run.real_calls is None:
        return None
    of = sum(use.count for use in story.operators if use.fate is Fate.NATIVE)
    return RealShare(story.run.real_calls, of, kernels_of(story.run.kernels_torch, story.run.torch_version))


def real_object(story: Story) -> dict[str, object] | None:
    """The share for a program."""
    share = real_share(story)
    if share is None:
        return None
    release = story.run.kernels_torch or None
    return {"torch": release, "calls": share.calls, "of": share.of, "operators": dict(sorted(share.operators.items()))}
