"""What answers depend on: the chip, memory, macOS and torch; nothing of whose machine it is."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from anymps.mac import Mac


def machine_facts(mac: Mac | None) -> dict[str, Any]:
    """Of the Mac that the virtual device plays, or of this one if that is None. Memory is in GiB."""
    common = {"torch": torch.__version__, "python": ".".join(platform.python_version_tuple()[:2])}
    if mac is not None:
        macos = ".".join(map(str, mac.macos))
        return {"chip": mac.chip, "gpu_cores": mac.gpu_cores, "memory_gib": mac.ram_gib, "macos": macos, **common}
    name = getattr(torch._C, "_mps_get_name", None)
    cores = getattr(torch._C, "_mps_get_core_count", None)
    return {
        "chip": str(name()) if name else "",
        "gpu_cores": int(cores()) if cores else 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "macos": platform.mac_ver()[0],
        **common,
    }
