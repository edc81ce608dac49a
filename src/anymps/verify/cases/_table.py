"""The table of cases, those of each kind in the order in which they are asked; and which machine is asked."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any, Final

import torch

from anymps.mac import Mac
from anymps.verify.cases._answering import Case
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


def machine_facts(mac: Mac | None) -> dict[str, Any]:
    """What answers depend on, of the Mac that the virtual device plays, or of this one if that is None.

    Memory is in GiB.
    """
    common = {"torch": torch.__version__, "python": ".".join(platform.python_version_tuple()[:2])}
    if mac is not None:
        macos = ".".join(map(str, mac.macos))
        return {"chip": mac.chip, "gpu_cores": mac.gpu_cores, "memory_gib": mac.ram_gib, "macos": macos, **common}
    return {
        "chip": str(torch._C._mps_get_name()),
        "gpu_cores": int(torch._C._mps_get_core_count()),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "macos": platform.mac_ver()[0],
        **common,
    }
