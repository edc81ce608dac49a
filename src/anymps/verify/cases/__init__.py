"""The calls that a Mac is asked, and what it answered: the tests of the virtual device ask the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.verify.cases._answering import answered
    from anymps.verify.cases._asked import cases_of
    from anymps.verify.cases._case import Answer, Case
    from anymps.verify.cases._database import database
    from anymps.verify.cases._fault_calls import FAULT_CALLS, FaultCall
    from anymps.verify.cases._machine import machine_facts
    from anymps.verify.cases._operators import OPERATORS, Operator
    from anymps.verify.cases._reductions import LAID, MATRICES, ROWS, matrices
    from anymps.verify.cases._samples import Draws
    from anymps.verify.cases._timed_calls import TIMED_CALLS, TimedCall, prepare
    from anymps.verify.cases._timing import RUNS, Measurement, measure, swapped_out
    from anymps.verify.cases._value_differences import value_difference
    from anymps.verify.cases._values import DTYPES, inputs, line
    from anymps.verify.cases._waiting import WAITING, WaitingCall

if not TYPE_CHECKING:
    __getattr__ = lazy_face(
        __name__,
        {
            "_value_differences": "value_difference",
            "_answering": "answered",
            "_asked": "cases_of",
            "_case": "Answer Case",
            "_database": "database",
            "_fault_calls": "FAULT_CALLS FaultCall",
            "_machine": "machine_facts",
            "_operators": "OPERATORS Operator",
            "_reductions": "LAID MATRICES ROWS matrices",
            "_samples": "Draws",
            "_timed_calls": "TIMED_CALLS TimedCall prepare",
            "_timing": "RUNS Measurement measure swapped_out",
            "_values": "DTYPES inputs line",
            "_waiting": "WAITING WaitingCall",
        },
    )
