"""Predictions for a Mac, by the shipped coefficients: of a call, a step, a first step; and the ratio of two Macs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from anymps._errors import CostError
from anymps.cost._coefficients import shipped, torch_release
from anymps.cost._kernel import conflict_seconds, rates
from anymps.cost._predict import OperatorTime, operator_time, works_of
from anymps.cost._tensors import OperatorCall
from anymps.cost._walk import Happening, WalkedStep, walked_step
from anymps.mac import Mac

# Nine small networks on an M2 Pro with a build of torch 2.10: the first step's time by the graphs in the cache after
# it was 1.9 to 5.8 ms, 2.5 in the middle, the step itself included. Steps with some graphs more took 1.8 to 4.4 ms
# for each (dharvpat/pytorch-PRs, GCache-Issues/baseline.json at a3a7b9d). A log of early 2023 suggests more: nanoGPT's
# first iteration took 2.6 s on an M2, two evaluations included (simonw/public-notes issue 11). That the host's speed
# decides is a judgement.
_EACH: Final = (2.5e-3, 1.9e-3, 5.8e-3)
_THERE: Final = 1.11  # the speed of that Mac's CPU


class Ratio(NamedTuple):
    """How many times as fast, and the ends of the 80 % interval of that."""

    value: float
    low: float
    high: float


def predict_operator(call: OperatorCall, mac: Mac, torch: str) -> OperatorTime:
    """The predicted time of one call on a Mac, with a release of torch (such as `2.13`).

    Raises CostError, in one line, for an operator or a dtype without a class, for a Mac whose rates are not known, for
    text that is not a tensor, and for a torch before 1.13.
    """
    return operator_time(call, mac, torch_release(torch), shipped())


def walk_step(happenings: Sequence[Happening], mac: Mac, torch: str, *, busy: float = 0.0) -> WalkedStep:
    """The predicted time of a step on a Mac, with a release of torch (such as `2.13`).

    What cannot be predicted is left out and named in the result. `busy` is the share of the program's own time in which
    other programs had its core while the step was recorded. That time is not in the happenings, but makes them less
    certain.

    Raises CostError for a Mac whose rates are not known, and for a torch before 1.13.
    """
    return walked_step(happenings, mac, torch_release(torch), shipped(), busy)


def conflict_time(call: OperatorCall, mac: Mac, torch: str) -> float:
    """The seconds that an adding scatter takes at least, as its additions to one cache line wait for each other.

    0 for a call of another kind, and where they do not wait. Its indices are taken to name all places alike.
    """
    release = torch_release(torch)
    try:
        return max((conflict_seconds(work, mac, release) for work in works_of(call, release.number)), default=0.0)
    except CostError:
        return 0.0


def compile_time(graphs: int, mac: Mac) -> tuple[float, float, float]:
    """The seconds that a Mac takes to compile so many graphs, and the ends of the interval that public logs span.

    Raises CostError for a Mac whose speed is not known.
    """
    middle, low, high = (each * graphs * _THERE / rates(mac)[1] for each in _EACH)
    return middle, low, high


def speed_ratio(of: WalkedStep, against: WalkedStep) -> Ratio:
    """How many times as fast the first step is as the second: the same happenings by the same torch on two Macs.

    Part of a prediction's error is the same on all Macs and cancels in the ratio; the rest of both errors adds up.
    """
    if not of.seconds or not against.seconds:
        return Ratio(1.0, 1.0, 1.0)
    value = against.seconds / of.seconds
    # What is wrong for a chip is wrong for all Macs with it.
    alike = (of.mac.chip, of.mac.gpu_cores) == (against.mac.chip, against.mac.gpu_cores)
    off = math.exp(max(of.alike, against.alike) if alike else max(of.between, against.between))
    return Ratio(value, value / off, value * off)
