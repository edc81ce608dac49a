"""What rules advise, as far as several share it: the user's line read and written anew, and words about waits."""

from __future__ import annotations

from anymps.findings.advice._chips import emulates_bfloat16
from anymps.findings.advice._equivalents import Equivalent, equivalent
from anymps.findings.advice._new_line import checked
from anymps.findings.advice._optimizers import could_be_fused, fused_heeds_scaler, made_at
from anymps.findings.advice._portable_cuda import portable
from anymps.findings.advice._replacement import Replacement, replacement
from anymps.findings.advice._scaler import scaler_advice
from anymps.findings.advice._user_line import UserLine, without_comment
from anymps.findings.advice._wait_advice import (
    Advice,
    anomaly_advice,
    copy_advice,
    instead_of,
    read_advice,
    show_advice,
    shows,
)

__all__ = [
    "Advice",
    "Equivalent",
    "Replacement",
    "UserLine",
    "anomaly_advice",
    "checked",
    "copy_advice",
    "could_be_fused",
    "emulates_bfloat16",
    "equivalent",
    "fused_heeds_scaler",
    "instead_of",
    "made_at",
    "portable",
    "read_advice",
    "replacement",
    "scaler_advice",
    "show_advice",
    "shows",
    "without_comment",
]
