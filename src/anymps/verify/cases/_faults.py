"""Cases of known bugs (MPS6xx): what the example of each prints."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from anymps.device import is_virtual, known_hazards
from anymps.rules.faults import Effect, Hazard, all_hazards
from anymps.verify.cases._answering import Answer, Case, answered

_UNSURE: Final = frozenset({Effect.MAY_BE_WRONG, Effect.VARIES, Effect.OPEN, Effect.MAY_ABORT, Effect.MAY_HANG})
_VALUES: Final = 2000
_LARGE: Final = frozenset({"MPS616", *(f"MPS{number}" for number in range(651, 659))})
"""Their calls need GiB."""
_UNSHOWN: Final = frozenset({"MPS618", "MPS661", "MPS671", "MPS672", "MPS673", "MPS674", "MPS681"})
"""No results of a single call show them."""


def fault_cases() -> list[Case]:
    """All bugs that their example can show; those that were seen to end a process last."""
    dire = {row.id for row in all_hazards() if row.is_dire}
    examples = {row.id: row.example for row in all_hazards() if row.example and not row.is_slow}
    shown = sorted(examples.keys() - _LARGE - _UNSHOWN, key=lambda identity: (identity in dire, identity))
    return [Case(identity, functools.partial(_asked, identity, examples[identity])) for identity in shown]


def _asked(identity: str, example: str) -> Answer:
    """What the example prints; of the virtual device, which computes it right, also whether it reports the bug."""

    def call() -> list[Any]:
        torch.manual_seed(0)
        printed: list[Any] = []
        with _RandomOnCpu():
            exec(example, {"torch": torch, "F": F, "device": "mps", "print": lambda *given: printed.extend(given)})
        return printed

    # Large numbers are left in free memory, for what reads past an end.
    held = [torch.full((1 << 20,), 1e4, device="mps") for _ in range(8)]
    held.clear()
    if not is_virtual():
        return answered(call, _VALUES)
    from anymps.capture import record

    with record() as capture:
        answer = answered(call, _VALUES)
    if not any(identity in occurrence.operator for occurrence in capture.recording.hazards()):
        return {**answer, "reports": "no"}
    return {**answer, "reports": "may" if _hazard(identity).effect in _UNSURE else "sure"}


class _RandomOnCpu(TorchFunctionMode):
    """Lets `torch.rand` draw on the CPU, where a seed gives the same numbers on every machine."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func is not torch.rand:
            return func(*args, **named)
        place, gradient = named.pop("device"), named.pop("requires_grad", False)
        return func(*args, **named).to(place).requires_grad_(gradient)


def _hazard(identity: str) -> Hazard:
    return next(hazard for hazard in known_hazards() if hazard.id == identity)
