"""Predictions for a Mac, by the shipped coefficients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from anymps._errors import CostError
from anymps.cost._coefficients import shipped, torch_release
from anymps.cost._predict import OperatorTime, StepTime, operator_time, step_time
from anymps.cost._tensors import OperatorCall
from anymps.cost._walk import Happening, WalkedStep, walked_step
from anymps.mac import Mac


def predict_operator(call: OperatorCall, mac: Mac, torch: str) -> OperatorTime:
    """The predicted time of one call on a Mac, with a release of torch (such as `2.13`).

    Raises CostError, in one line, for an operator or a dtype without a class, for a Mac whose rates are not known, for
    text that is not a tensor, and for a torch before 1.13.
    """
    return operator_time(call, mac, torch_release(torch), shipped())


def predict_step(
    calls: Iterable[OperatorCall] | Mapping[OperatorCall, int], mac: Mac, torch: str, *, waits: int = 0
) -> StepTime:
    """The predicted time of calls that a program makes one after the other; the host waits `waits` times.

    `calls` may map each call to how often it occurs. What cannot be predicted is left out and named in the result. Host
    and device overlap: the sum of both is the fourth root of the sum of fourth powers.

    Raises CostError for a Mac whose rates are not known, for a torch before 1.13 and for a negative number of waits.
    """
    if waits < 0:
        raise CostError(f"anymps: {waits} is not a number of waits")
    counts = calls if isinstance(calls, Mapping) else Counter(calls)
    return step_time(counts, mac, torch_release(torch), waits, shipped())


def walk_step(happenings: Sequence[Happening], mac: Mac, torch: str, *, busy: float = 0.0) -> WalkedStep:
    """The predicted time of a step on a Mac, with a release of torch (such as `2.13`).

    What cannot be predicted is left out and named in the result. `busy` is the share of the program's own time in which
    other programs had its core while the step was recorded. That time is not in the happenings, but makes them less
    certain.

    Raises CostError for a Mac whose rates are not known, and for a torch before 1.13.
    """
    return walked_step(happenings, mac, torch_release(torch), shipped(), busy)
