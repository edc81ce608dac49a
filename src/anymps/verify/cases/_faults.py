"""Cases of known faults (MPS6xx): each call at the sizes that its rule names, beside the CPU's result."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves

from anymps.device import is_virtual, known_hazards
from anymps.numerics import bound_of, differences
from anymps.rules.faults import Hazard, Outcome, all_hazards
from anymps.verify.cases._answering import refusal
from anymps.verify.cases._case import Answer, Case
from anymps.verify.cases._fault_calls import FAULT_CALLS, FaultCall

_UNSURE: Final = frozenset({Outcome.MAY_BE_WRONG, Outcome.VARIES, Outcome.OPEN, Outcome.MAY_ABORT, Outcome.MAY_HANG})
_RUNS: Final = 5
_PATIENCE: Final = 45.0
_SPARE: Final = 0.5
"""The share of the working set that a case may take."""


def fault_cases() -> list[Case]:
    """The harmless ones first; what is large, or was seen to end a process, last and each in one of its own."""
    found = []
    for identity, call in FAULT_CALLS.items():
        alone = call.by_rule or any(hazard.is_dire for hazard in _rows(identity))
        found.append(Case(identity, functools.partial(_asked, identity, call), alone=alone, patience=_PATIENCE))
    return sorted(found, key=lambda case: (case.alone, any(hazard.is_dire for hazard in _rows(case.id)), case.id))


def _rows(identity: str) -> list[Hazard]:
    return [hazard for hazard in all_hazards() if hazard.id == identity]


def _asked(identity: str, call: FaultCall) -> Answer:
    hazard = next((one for one in known_hazards() if one.id == identity), None)
    about: Answer = {"title": _rows(identity)[0].title, "sure": hazard is not None and hazard.outcome not in _UNSURE}
    if call.bytes_needed > _SPARE * torch.mps.recommended_max_memory():
        text = f"needs {call.bytes_needed >> 30} GiB, more than half of the working set"
        return {**about, "does": "unasked", "text": text}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not is_virtual():
            return {**about, **_seen(call)}
        return {**about, **({"shows": hazard is not None} if call.by_rule else _recorded(identity, call))}


def _recorded(identity: str, call: FaultCall) -> Answer:
    """Whether the virtual device, which computes it right, tells of the fault."""
    from anymps.capture import record

    with record() as capture:
        try:
            call.call("mps")
        except Exception as error:
            refused = refusal(error)
        else:
            refused = {}
    found = any(identity in occurrence.operator for occurrence in capture.recording.hazards())
    return {"shows": found, **{key: refused[key] for key in refused if key != "does"}}


def _seen(call: FaultCall) -> Answer:
    """Whether results part from the CPU's, or from run to run; a refusal shows what refuses."""
    try:
        first = _results(call.call, "mps")
        if call.varies:
            again = [_results(call.call, "mps") for _ in range(_RUNS)]
            return {"shows": any(not torch.equal(x, y) for run in again for x, y in zip(first, run, strict=True))}
    except Exception as error:
        answer = refusal(error)
        return {"shows": call.raises, "error": answer["error"], "text": answer["text"]}
    if call.raises:
        return {"shows": False}
    return _beside_the_cpu(first, _tensors(call.expected()) if call.expected else _results(call.call, "cpu"))


def _results(call: Callable[[str], Any], device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return _tensors(call(device))


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf.detach().to("cpu") for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _beside_the_cpu(found: list[torch.Tensor], expected: list[torch.Tensor]) -> Answer:
    if [x.shape for x in found] != [x.shape for x in expected]:
        return {"shows": True, "text": "sizes of the results differ from the CPU's"}
    for mine, right in zip(found, expected, strict=True):
        apart = differences(right, mine, bound_of("", mine.dtype).of_two())
        if apart is not None:
            where = ", ".join(map(str, apart.index))
            text = f"{apart.wrong} of {apart.count} wrong; {apart.found} at [{where}], {apart.expected} on the CPU"
            return {"shows": True, "text": text}
    return {"shows": False}
