"""The cases of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anymps.verify.cases._case import Case
from anymps.verify.cases._faults import fault_cases
from anymps.verify.cases._memory import memory_cases
from anymps.verify.cases._pairs import pair_cases
from anymps.verify.cases._samples import database_cases, fallback_cases
from anymps.verify.cases._streams import stream_cases
from anymps.verify.cases._surface import surface_cases
from anymps.verify.cases._times import time_cases
from anymps.verify.cases._waits import wait_cases

_MADE: Final[dict[str, Callable[[], list[Case]]]] = {
    "surface": surface_cases,
    "memory": memory_cases,
    "streams": stream_cases,
    "waits": wait_cases,
    "pairs": pair_cases,
    "operators": database_cases,
    "fallbacks": fallback_cases,
    "times": time_cases,
    "faults": fault_cases,
}


def cases_of(kind: str) -> tuple[list[Case], str]:
    """The cases of a kind, in the order in which they are asked; and why there are none, if so."""
    try:
        found = _MADE[kind]()
    except ModuleNotFoundError as error:
        return [], f"torch's operator database needs {error.name}, which is not installed: pip install {error.name}"
    return list({case.id: case for case in found}.values()), ""
