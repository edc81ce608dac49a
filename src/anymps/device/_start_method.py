"""How a process of the virtual Mac starts others: by `spawn`, as macOS does since Python 3.8, and with the device on.

Only the default changes. What a program asks for itself (`set_start_method`, `get_context("fork")`,
`multiprocessing_context=`) holds. Source: docs.python.org, multiprocessing, contexts and start methods.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import multiprocessing.context
import multiprocessing.spawn
import os
import pickle
import secrets
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from anymps._errors import EnableError
from anymps._settings import variable_of
from anymps.device._gpus import RANK_VARIABLE
from anymps.mac import Mac

SYSTEM: Final = "system"
"""Leave `multiprocessing` as it is: the system's own default, and no device in processes that start afresh, unless
`give_to_children` says so."""
_OF_MACOS: Final = "spawn"

# What a new process runs before anything else. Its path is that of `python -c`; until Python gives it the parent's,
# ours goes before the script's own folder, so that nothing there passes for anymps.
_SWITCH_ON: Final = (
    "import sys, pickle\n"
    "sys.path[:] = path\n"
    "from anymps.device._started import switch_on\n"
    "switch_on(pickle.loads(mac), method, mark, rank)\n"
)

_given: tuple[Mac, str] | None = None
_mark: str | None = None
"""A file that processes started from here leave when they first use the device, their parent's where that has one: what
they do is the parent's, too. One that ends by a signal leaves it, too."""


def choose_start_method(asked: str | None) -> str:
    """The start method asked for, else that of `ANYMPS_START_METHOD`, else macOS's. Raises EnableError for others."""
    method = asked or os.environ.get(variable_of("start_method")) or _OF_MACOS
    known = (*multiprocessing.get_all_start_methods(), SYSTEM)
    if method not in known:
        what = f"start_method={asked!r}" if asked else f"{variable_of('start_method')}={method!r}"
        raise EnableError(f"anymps: {what} is not a start method here; use one of {', '.join(sorted(known))}")
    return method


def install_start_method(method: str, mac: Mac) -> None:
    """Make `method` the default of `multiprocessing`, and give the device to every process that starts afresh."""
    if method == SYSTEM:
        return
    # Python's own `set_start_method` would settle the choice, and a script that calls it could not any more.
    default: Any = vars(multiprocessing.context)["_default_context"]
    default._default_context = multiprocessing.get_context(method)
    give_to_children(mac, method)


def give_to_children(mac: Mac, method: str = SYSTEM) -> None:
    """Give the device to every process that `multiprocessing` starts afresh, with `method` as its own default."""
    global _given
    if _given is None:
        _hand_on()
    _given = mac, method


def _hand_on() -> None:
    """Let what Python tells a new process about its parent hold the device, too."""
    original: Any = multiprocessing.spawn.get_preparation_data

    @functools.wraps(original)
    def with_device(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if _given is not None:
            started = sys._getframe(1).f_locals.get("process_obj")  # as each way to start anew calls it
            device = _Device(*_given, data.get("sys_path", sys.path), _place_of_mark(), _rank_of(started))
            data = {"anymps": device, **data}
        return data

    vars(multiprocessing.spawn)["get_preparation_data"] = with_device


def _rank_of(process: Any) -> str:
    """The number of a new process among those that share NVIDIA GPUs; empty where it shares its parent's.

    So do the workers of a DataLoader, and all that a process starts which has a number itself.
    """
    target = getattr(process, "_target", None)
    if os.environ.get(RANK_VARIABLE) or getattr(target, "__module__", "") == "torch.utils.data._utils.worker":
        return ""
    identity = getattr(process, "_identity", ())
    return str(identity[-1] - 1) if identity else ""


def _place_of_mark() -> str:
    global _mark
    if _mark is None:
        _mark = os.path.join(tempfile.gettempdir(), f"anymps-{os.getpid()}-{secrets.token_hex(8)}")
        atexit.register(_forget_mark, os.getpid(), _mark)
    return _mark


def _forget_mark(process: int, mark: str) -> None:
    if os.getpid() == process:
        with suppress(OSError):
            os.unlink(mark)


def leave_mark_of(parent: str) -> None:
    """Have the processes that this one starts leave its parent's mark."""
    global _mark
    _mark = parent


def children_used_mps() -> bool:
    """Whether a process that `multiprocessing` started from here, or from a child of this one, has used the device."""
    return _mark is not None and os.path.exists(_mark)


class _Device:
    """Switches the device on where it is unpickled."""

    def __init__(self, mac: Mac, method: str, path: list[str], mark: str, rank: str) -> None:
        home = str(Path(__file__).resolve().parents[2])
        path = [home, *(entry for entry in path if entry)]
        self._names = {"mac": pickle.dumps(mac), "method": method, "path": path, "mark": mark, "rank": rank}

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (_SWITCH_ON, self._names)
