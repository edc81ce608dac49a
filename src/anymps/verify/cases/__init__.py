"""The calls that a Mac is asked, and what it answered: the tests of the virtual device ask the same. Loads torch."""

from __future__ import annotations

from anymps.verify.cases._answering import Answer, Case, answered, value_difference
from anymps.verify.cases._database import database
from anymps.verify.cases._samples import Draws
from anymps.verify.cases._table import TABLE, cases_of, machine_facts
from anymps.verify.cases._waiting import WAITING, SampleCall
