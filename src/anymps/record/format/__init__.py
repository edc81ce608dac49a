"""The file format of a recording, for readers and writers: tables, their rows, packed entries."""

from __future__ import annotations

from anymps.record.format._packed import ALLOCATION, ENTRY, MOST, RANGES
from anymps.record.format._schema import (
    APPLICATION_ID,
    ON_CPU,
    ON_MPS,
    SCHEMA_VERSION,
    TABLES,
    ModuleRow,
    OperatorRow,
    Picked,
    RefusalRow,
    RoundRow,
    SignatureRow,
    SiteRow,
    StepRow,
    TotalRow,
    check_chunk,
    create_tables,
    expand_spool,
    mattering,
)
