"""The calls that a Mac is asked, and what it answered: the tests of the virtual device ask the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.verify.cases._database import database
    from anymps.verify.cases._operators import OPERATORS, Operator
    from anymps.verify.cases._timed_calls import TIMED_CALLS, TimedCall, prepare
    from anymps.verify.cases._timing import RUNS, Measurement, measure, swapped_out
    from anymps.verify.cases._values import DTYPES, inputs, line
    from anymps.verify.cases._waiting import WAITING, WaitingCall

__all__ = [
    "DTYPES",
    "OPERATORS",
    "RUNS",
    "TIMED_CALLS",
    "WAITING",
    "Measurement",
    "Operator",
    "TimedCall",
    "WaitingCall",
    "database",
    "inputs",
    "line",
    "measure",
    "prepare",
    "swapped_out",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_face(
        __name__,
        {
            "_database": "database",
            "_operators": "OPERATORS Operator",
            "_timed_calls": "TIMED_CALLS TimedCall prepare",
            "_timing": "RUNS Measurement measure swapped_out",
            "_values": "DTYPES inputs line",
            "_waiting": "WAITING WaitingCall",
        },
    )
