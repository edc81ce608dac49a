"""How to avoid a GradScaler's wait in every step: a fused optimizer that supports the scaler, or another dtype."""

from __future__ import annotations

from typing import Final

from anymps.findings._costs import ITEM
from anymps.findings.advice._chips import emulates_bfloat16
from anymps.findings.advice._library_advice import Advice
from anymps.findings.advice._optimizers import could_be_fused, fused_heeds_scaler
from anymps.record import Recording

_SOURCE: Final = f"torch/amp/grad_scaler.py (torch 2.13); {ITEM.source}"


def scaler_advice(recording: Recording) -> Advice:
    """GradScaler.step reads whether a gradient is infinite, except for an optimizer that looks at it on the device."""
    what = "GradScaler read whether a gradient was infinite"
    optimizers = recording.noted("optimizer")
    if optimizers and all(map(could_be_fused, optimizers)) and fused_heeds_scaler(recording):
        name = optimizers[0].facts["name"]
        fix = f"Give it a fused optimizer, which checks that on the device: `{name}(..., fused=True)`."
    elif emulates_bfloat16(recording):
        fix = "float32 needs no GradScaler; nor does bfloat16, but this chip emulates it (MPS305)."
    else:
        fix = "Train in bfloat16 or float32, which need no GradScaler."
    return Advice(what, fix, _SOURCE, elsewhere=True)
