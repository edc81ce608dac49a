"""Recording a run as it happens: a source of entries, hooks around it, what a test suite needs, and how a run ended.

Importing it loads no torch: what a run or a gate needs beyond `record` and the ending loads when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from anymps.capture._cells import name_cell
from anymps.capture._endings import INTERRUPTED, ending_of
from anymps.capture._start import record

if TYPE_CHECKING:
    from anymps.capture._progress import Progress
    from anymps.capture._recorder import ALLOCATION_LIMIT, DETAIL_LIMIT, Capture
    from anymps.capture._suite import Allocation, LateError, Section, SuiteCapture

__all__ = [
    "ALLOCATION_LIMIT",
    "DETAIL_LIMIT",
    "INTERRUPTED",
    "Allocation",
    "Capture",
    "LateError",
    "Progress",
    "Section",
    "SuiteCapture",
    "ending_of",
    "name_cell",
    "record",
]

_HOMES = {
    "ALLOCATION_LIMIT": "anymps.capture._recorder",
    "Allocation": "anymps.capture._suite",
    "Capture": "anymps.capture._recorder",
    "DETAIL_LIMIT": "anymps.capture._recorder",
    "LateError": "anymps.capture._suite",
    "Progress": "anymps.capture._progress",
    "Section": "anymps.capture._suite",
    "SuiteCapture": "anymps.capture._suite",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value
