"""Known bugs of the real backend: rows of typed data, by torch release, macOS and GPU."""

from __future__ import annotations

from anymps.rules.faults._model import (
    BATCHED_MATRICES,
    COMPILED_LAYER_NORM,
    ELSEWHERE,
    FIRST_ASKED,
    GRAD_SCALER,
    NARROWING_COPY,
    SIZE,
    THREADS,
    Effect,
    Hazard,
    sources_of,
)
from anymps.rules.faults._table import HazardRow, all_hazards, elsewhere, hazard_table, hazards, hazards_with_kernels
