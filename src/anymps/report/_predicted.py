"""How long the GPU of the chosen Mac would be busy with a step of the recording, as far as that can be predicted."""

from __future__ import annotations

from typing import Final

from anymps._errors import CostError, MacError
from anymps._units import duration, duration_range
from anymps.cost import OperatorCall, StepTime, predict_step
from anymps.mac import Mac, parse_mac
from anymps.record import Fate, Recording
from anymps.report._words import fact

_LEAST_COVERED: Final = 0.9
"""Of a step's calls: with fewer predicted ones there is no number."""

# Marks are no calls; what else did not run in a kernel of MPS has no predicted time.
_CALLS: Final = "SELECT signature, COUNT(*), SUM(wait != 0) FROM entries WHERE step = {step} GROUP BY signature"


def predicted_step(recording: Recording) -> StepTime | None:
    """The predicted time of the typical step on the recording's Mac.

    None without a step, for a Mac or a torch without data, and where less than nine tenths of the step's calls have a
    predicted time.
    """
    step, mac = recording.typical_step(), _mac(recording)
    if step is None or mac is None:
        return None
    calls: dict[OperatorCall, int] = {}
    waits = elsewhere = 0
    for identity, count, waited in recording.stream(_CALLS.format(step=int(step.step))):
        signature = recording.signature(identity)
        if signature.fate is Fate.MARK:
            continue
        waits += waited
        if signature.fate in (Fate.NATIVE, Fate.COPY):
            call = OperatorCall(signature.operator, signature.inputs, signature.outputs)
            calls[call] = calls.get(call, 0) + count
        elif signature.fate is not Fate.WAIT:
            elsewhere += count
    try:
        time = predict_step(calls, mac, fact(recording, "torch_version"), waits=waits)
    except CostError:
        return None
    known = time.predicted >= _LEAST_COVERED * (time.calls + elsewhere) and time.device > 0
    return time if known else None


def predicted_sentence(recording: Recording) -> str:
    """The prediction in words, the empty text without one."""
    time, mac = predicted_step(recording), _mac(recording)
    if time is None or mac is None:
        return ""
    span = duration_range(1e9 * time.device_low, 1e9 * time.device_high)
    return f"A step would keep the GPU of an {mac.name} busy for about {duration(1e9 * time.device)} ({span})."


def _mac(recording: Recording) -> Mac | None:
    # The details name the GPU cores, which the short name leaves out.
    return _read(fact(recording, "mac_details").partition(":")[0]) or _read(fact(recording, "mac"))


def _read(text: str) -> Mac | None:
    try:
        return parse_mac(text)
    except MacError:
        return None
