"""The calls that a Mac is asked, and what it answered: operators and their inputs. The tests ask the same."""

from __future__ import annotations

from anymps.verify.cases._database import database
from anymps.verify.cases._operators import OPERATORS, Operator
from anymps.verify.cases._values import DTYPES, inputs, line

__all__ = ["DTYPES", "OPERATORS", "Operator", "database", "inputs", "line"]
