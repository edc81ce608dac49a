"""What is settled when a recording starts: who tells it of calls, and the facts about run and machine."""

from __future__ import annotations

import os
import platform
import time
from datetime import datetime, timezone
from functools import cache
from random import Random
from typing import Final

from anymps._errors import EnableError
from anymps._version import __version__
from anymps.device import CACHE_VARIABLE, State, state, this_mac

SOURCES = ("native", "observer")
"""Who tells the native recorder of calls: the virtual device's kernels, or an observer of all operators."""

_VARIABLES = ("PYTORCH_", "ANYMPS_", "MTL_")
_OUR_OWN = (CACHE_VARIABLE, "ANYMPS_CHILD")

_COUNT: Final = 4096
_SLICES: Final = 31  # of a third of a millisecond on a server
_M1_NS: Final = 218_000
"""What a slice is taken to take a core of an M1: 0.65 of the 335 us of a server, an AMD EPYC (Zen 4) with Python 3.11.
The ratio is judgement: no Mac was timed."""
_SLOWEST, _FASTEST = 0.1, 4.0


def choose_source(wanted: str | None, current: State) -> str:
    """`native` on the virtual device unless something else is asked for, `observer` on a Mac's own."""
    if wanted is None:
        return "native" if current.virtual else "observer"
    if wanted not in SOURCES:
        raise EnableError(f"anymps: source must be {' or '.join(map(repr, SOURCES))}, not {wanted!r}")
    if wanted == "native" and not current.virtual:
        raise EnableError("anymps: source='native' needs the virtual device; a Mac's own is recorded by 'observer'")
    return wanted


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
        "fallback": current.fallback,
        "threads": torch.get_num_threads(),
        **({"card": f"cuda:{card.number}, {card.name}"} if (card := current.card) is not None else {}),
        **({"core_speed": core_speed()} if current.virtual else {}),
        "environment": environment(),
    }


def environment() -> dict[str, str]:
    """What changes how a run behaves; not what we have set: where the core is, and where children leave parts."""
    names = sorted(name for name in os.environ if name.startswith(_VARIABLES) and not name.startswith(_OUR_OWN))
    return {name: os.environ[name] for name in names}


@cache
def core_speed() -> float:
    """How fast a core is, an M1's being 1, by a fiftieth of a second of sorting, once a process.

    Sorting is the interpreter's C code, with branches and memory as a program's own has. By the thread's processor
    time, and the median slice counts, each of other numbers. A core learns the branches of numbers that it sorts again,
    and forgets them where other programs have it for a while: the quickest slice of equal ones takes 175 us on that
    server alone, and 220 us beside four busy processes.
    """
    numbers = Random(12345)
    slices = sorted(_slice([numbers.random() for _ in range(_COUNT)]) for _ in range(_SLICES))
    return round(min(_FASTEST, max(_SLOWEST, _M1_NS / max(1, slices[_SLICES // 2]))), 3)


def _slice(numbers: list[float]) -> int:
    start = time.thread_time_ns()
    sorted(numbers)
    return time.thread_time_ns() - start
