"""Optimizers and their GradScaler: where each was made, whether mps has a fused kernel for it, which dtype fits.

A GradScaler waits in every step, unless a fused optimizer reads its result on the device. bfloat16 needs no GradScaler.
"""

from __future__ import annotations

from typing import Final

from anymps.findings._costs import ITEM
from anymps.findings._loop import is_library
from anymps.findings._release import known_fault, release_of
from anymps.findings.advice._remedies import FUSED
from anymps.findings.advice._wait_advice import Advice
from anymps.record import Noted, Optimizer, Recording, Site
from anymps.rules.faults import GRAD_SCALER

_FUSED = ("Adam", "AdamW", "SGD")
_FUSED_DTYPES = {"float32", "float16", "bfloat16"}
_EMULATING: Final = ("apple7", "apple8")  # Metal's GPU families of M1 and M2
_SCALER: Final = f"torch/amp/grad_scaler.py (torch 2.13); {ITEM.source}"


def made_at(optimizer: Noted) -> Site:
    """The line that made an optimizer or a loader; where that is in a package or unknown, the line of its first use."""
    made = optimizer.other
    return made if made.known and not is_library(made) else optimizer.occurrence.site


def fused_heeds_scaler(recording: Recording) -> bool:
    """Whether the fused kernels of the recording's torch look at what a GradScaler found (MPS691: some do not)."""
    return release_of(recording) is not None and known_fault(recording, GRAD_SCALER) is None


def could_be_fused(optimizer: Optimizer) -> bool:
    """Whether it is one of torch's that mps has a fused kernel for, with parameters that the kernel takes."""
    return (
        optimizer.torch
        and optimizer.name in _FUSED
        and optimizer.tensors == optimizer.on_mps
        and bool(optimizer.dtypes)
        and _FUSED_DTYPES.issuperset(optimizer.dtypes)
        and "True" not in (*optimizer.fused, *optimizer.differentiable)
    )


def has_half_parameters(recording: Recording, dtype: str = "float16") -> bool:
    """Whether an optimizer has parameters of that dtype themselves. A GradScaler raises for float16 ones."""
    return any(dtype in optimizer.dtypes for optimizer in recording.optimizers())


def emulates_bfloat16(recording: Recording) -> str:
    """Metal's family of the recording's GPU if that has no bfloat16 arithmetic; else, or if it is not known, empty."""
    mac = recording.run.known_mac
    return mac.metal_family if mac is not None and mac.metal_family in _EMULATING else ""


def scaler_advice(recording: Recording) -> Advice:
    """GradScaler.step reads whether a gradient is infinite, except for an optimizer that looks at it on the device."""
    what = "GradScaler read whether a gradient was infinite"
    optimizers = recording.optimizers()
    if optimizers and all(map(could_be_fused, optimizers)) and fused_heeds_scaler(recording):
        fix = f"{FUSED}, which then checks that on the device: `{optimizers[0].name}(..., fused=True)`."
    elif emulates_bfloat16(recording):
        fix = "float32 needs no GradScaler; nor does bfloat16, but this chip emulates it (MPS305)."
    else:
        fix = "Train in bfloat16 or float32, which need no GradScaler."
    return Advice(what, fix, _SCALER, elsewhere=True)
