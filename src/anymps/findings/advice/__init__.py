"""Advice that several rules share: the user's line, parsed and rewritten, and the wording about waits."""

from __future__ import annotations

from anymps.findings.advice._equivalents import Equivalent, equivalent
from anymps.findings.advice._library_advice import Advice
from anymps.findings.advice._optimizers import (
    could_be_fused,
    emulates_bfloat16,
    fused_heeds_scaler,
    has_half_parameters,
    made_at,
    scaler_advice,
)
from anymps.findings.advice._user_line import UserLine
from anymps.findings.advice._wait_advice import (
    anomaly_advice,
    copy_advice,
    instead_of,
    read_advice,
    reads_action,
    show_advice,
    shown_by,
    shows,
)
