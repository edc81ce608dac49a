"""Which Mac this machine is, if `mps` is its own: recordings judge memory by it."""

from __future__ import annotations

import platform
import sys

from anymps._errors import MacError
from anymps._numbers import digits, whole
from anymps._own_process import printed_by
from anymps.mac import Mac, parse_mac
from anymps.rules import TorchVersion
from anymps.rules.faults import Hazard, hazards


def this_mac() -> Mac | None:
    """The Mac that runs this process, by what macOS and Metal say; None elsewhere, or for one that is not known."""
    if sys.platform != "darwin":
        return None
    import torch

    chip = str(torch._C._mps_get_name()).removeprefix("Apple ")
    memory = printed_by(["sysctl", "-n", "hw.memsize"])
    size = whole(memory) or 0
    return mac_named(chip, size, platform.mac_ver()[0], printed_by(["sysctl", "-n", "iogpu.wired_limit_mb"]))


def mac_named(chip: str, memory: int, macos: str, wired: str = "") -> Mac | None:
    """The Mac with that chip (`M3 Pro`), `memory` in bytes, version of macOS, and raised limit in MiB if there is."""
    version = ".".join(macos.split(".")[:2])
    try:
        return parse_mac(
            f"{chip} {memory >> 30}GB" + (f", macOS {version}" if version else ""),
            wired_limit_mb=whole(wired) or 0,
        )
    except MacError:
        return None


def hazards_of(mac: Mac | None, macos: str, torch_version: TorchVersion) -> tuple[Hazard, ...]:
    """The known bugs of a Mac; where its GPU or macOS (`15.4.1`) is not known, only those that hold for all."""
    numbers = [digits(part) for part in macos.split(".")[:2] if part.isdecimal()]
    if mac is None and not numbers:
        return tuple(hazard for hazard in hazards(torch_version, (0, 0), "") if not hazard.macos)
    release = mac.macos if mac is not None else (numbers[0], numbers[1] if len(numbers) > 1 else 0)
    return hazards(torch_version, release, mac.metal_family if mac is not None else "")
