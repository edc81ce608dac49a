"""Recording a run as it happens: a source of entries, hooks around it, what a test suite needs, and how a run ended.

Importing it loads no torch: what a run or a gate needs beyond `record` and the ending loads when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.capture._endings import INTERRUPTED, ending_of, name_cell
    from anymps.capture._hooks import OptimizerNumbers
    from anymps.capture._part import Progress
    from anymps.capture._recorder import ALLOCATION_LIMIT, DETAIL_LIMIT, Capture
    from anymps.capture._start import record
    from anymps.capture._suite import Allocation, LateError, Section, SuiteCapture

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
