"""The table of cases: those of each kind, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anymps.verify.cases._case import Case
from anymps.verify.cases._faults import fault_cases
from anymps.verify.cases._memory import memory_cases
from anymps.verify.cases._samples import database_cases, fallback_cases
from anymps.verify.cases._streams import stream_cases
from anymps.verify.cases._waits import wait_cases

TABLE: Final[dict[str, Callable[[], list[Case]]]] = {
    "faults": fault_cases,
    "waits": wait_cases,
    "streams": stream_cases,
    "fallbacks": fallback_cases,
    "operators": database_cases,
    "memory": memory_cases,
}


def cases_of(kind: str) -> tuple[list[Case], str]:
    """The cases of a kind, and why there are none, if so."""
    try:
        return TABLE[kind](), ""
    except ModuleNotFoundError as error:
        return [], f"torch's operator database needs {error.name}, which is not installed: pip install {error.name}"
