"""The calls that a Mac is asked, and what it answered: the tests of the virtual device ask the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.verify.cases._answering import Answer, Case, answered
    from anymps.verify.cases._database import database
    from anymps.verify.cases._samples import Draws
    from anymps.verify.cases._table import TABLE, cases_of, machine_facts
    from anymps.verify.cases._value_differences import value_difference
    from anymps.verify.cases._waiting import WAITING, WaitingCall

if not TYPE_CHECKING:
    __getattr__ = lazy_face(
        __name__,
        {
            "_answering": "Answer Case answered",
            "_database": "database",
            "_samples": "Draws",
            "_table": "TABLE cases_of machine_facts",
            "_value_differences": "value_difference",
            "_waiting": "WAITING WaitingCall",
        },
    )
