"""What is fixed when a recording starts: its source of calls, and the facts about run and machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from datetime import datetime, timezone
from typing import cast

from anymps._errors import EnableError
from anymps._version import __version__
from anymps.capture._core import Assign, Core
from anymps.device import CACHE_VARIABLE, State, native, state, this_mac
from anymps.rules.faults import all_hazards

SOURCES = ("native", "observer")
"""Who tells the native recorder of calls: the virtual device's kernels, or an observer of all operators."""

_VARIABLES = ("PYTORCH_", "ANYMPS_", "MTL_")
_OUR_OWN = (CACHE_VARIABLE, "ANYMPS_CHILD")


def choose_source(wanted: str | None, current: State) -> str:
    """`native` on the virtual device unless something else is asked for, `observer` on a Mac's own."""
    if wanted is None:
        return "native" if current.virtual else "observer"
    if wanted not in SOURCES:
        raise EnableError(f"anymps: source must be {' or '.join(map(repr, SOURCES))}, not {wanted!r}")
    if wanted == "native" and not current.virtual:
        raise EnableError("anymps: source='native' needs the virtual device; a Mac's own is recorded by 'observer'")
    return wanted


def core_of(source: str, save: Callable[[], None]) -> tuple[Core, Assign]:
    """What records, and what says on its ledger what a storage is; `save` takes the tape to the file at once."""
    if source == "native":
        core = native()
        return core, lambda storage, role, module: core.ledger_assign(storage._cdata, role, module)
    from anymps.capture.observer import ObserverCore

    observer = ObserverCore(native(), save)
    return cast("Core", observer), observer.assign_storage  # it hands on what it does not have itself


def machine_facts() -> dict[str, object]:
    """What a recording says of this process, its torch and its device."""
    import torch

    current = state()
    assert current is not None
    mac = current.mac if current.virtual else this_mac()
    return {
        "anymps_version": __version__,
        "torch_version": torch.__version__,
        "python_version": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "directory": os.getcwd(),
        "process": os.getpid(),
        "virtual": current.virtual,
        "mac": mac.name if mac is not None else "",
        "mac_details": mac.describe() if mac is not None else "",
        "threads": torch.get_num_threads(),
        "faults": sorted({hazard.id for hazard in all_hazards()}),
        **({"card": f"cuda:{gpu.number}, {gpu.name}"} if (gpu := current.gpu) is not None else {}),
        **closing_facts(),
    }


def closing_facts() -> dict[str, object]:
    """What the script itself may have changed at its end."""
    current = state()
    return {"environment": _environment(), **({"fallback": current.fallback} if current is not None else {})}


def _environment() -> dict[str, str]:
    """The variables that change how a run behaves, without those that anymps has set itself."""
    names = sorted(name for name in os.environ if name.startswith(_VARIABLES) and not name.startswith(_OUR_OWN))
    return {name: os.environ[name] for name in names}
