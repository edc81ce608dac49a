"""Cases of known bugs (MPS6xx): the results of each call at the sizes that its rule names."""

from __future__ import annotations

import functools
from typing import Final

import torch

from anymps.device import is_virtual, known_hazards
from anymps.rules.faults import Hazard, Outcome, all_hazards
from anymps.verify.cases._answering import answered
from anymps.verify.cases._case import Answer, Case
from anymps.verify.cases._fault_calls import FAULT_CALLS

_UNSURE: Final = frozenset({Outcome.MAY_BE_WRONG, Outcome.VARIES, Outcome.OPEN, Outcome.MAY_ABORT, Outcome.MAY_HANG})
_VALUES: Final = 2000


def fault_cases() -> list[Case]:
    """All calls; those that were seen to end a process last."""
    dire = {hazard.id for hazard in all_hazards() if hazard.is_dire}
    ordered = sorted(FAULT_CALLS, key=lambda identity: (identity in dire, identity))
    return [Case(identity, functools.partial(_asked, identity)) for identity in ordered]


def _asked(identity: str) -> Answer:
    """What the call gives; of the virtual device, which computes it right, also whether it reports the fault."""

    def call() -> object:
        torch.manual_seed(0)
        return FAULT_CALLS[identity]("mps")

    if not is_virtual():
        return answered(call, _VALUES)
    from anymps.capture import record

    with record() as capture:
        answer = answered(call, _VALUES)
    if not any(identity in occurrence.operator for occurrence in capture.recording.hazards()):
        return {**answer, "reports": "no"}
    return {**answer, "reports": "may" if _hazard(identity).outcome in _UNSURE else "sure"}


def _hazard(identity: str) -> Hazard:
    return next(hazard for hazard in known_hazards() if hazard.id == identity)
