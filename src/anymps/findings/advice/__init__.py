"""Advice that several rules share: the user's line, parsed and rewritten, and the wording about waits."""

from __future__ import annotations

from anymps.findings.advice._optimizers import (
    could_be_fused,
    emulates_bfloat16,
    fused_heeds_scaler,
    has_half_parameters,
    made_at,
    scaler_advice,
)
from anymps.findings.advice._remedies import (
    AT_TOP_LEVEL,
    BUFFER,
    CPU_DATA_SET,
    DATA_SET_ON_MPS,
    EVERY_10,
    EVERYWHERE,
    FIXED_SIZES,
    FUSED,
    LESS_MEMORY,
    MAIN_GUARD,
    ON_DEVICE,
    ON_THE_CPU,
    PREFER_MPS,
    PRINT_EVERY_10,
    WAITS,
    Equivalent,
    add_up,
    equivalent,
    index_on_device,
    keep_numbers,
    move_module,
    without_graph,
)
from anymps.findings.advice._user_line import UserLine
from anymps.findings.advice._wait_advice import (
    Advice,
    anomaly_advice,
    copy_advice,
    instead_of,
    read_advice,
    reads_action,
    show_advice,
    shown_by,
    shows,
)
