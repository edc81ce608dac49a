"""The file format of a recording, for readers and writers: tables, their rows, packed entries."""

from __future__ import annotations

from anymps.record.format._packed import ALLOCATION, ENTRY, MOST, RANGES, Packed
from anymps.record.format._schema import (
    APPLICATION_ID,
    ON_CPU,
    ON_MPS,
    SCHEMA_VERSION,
    TABLES,
    Picked,
    Row,
    create_tables,
    expand_spool,
    mattering,
)
