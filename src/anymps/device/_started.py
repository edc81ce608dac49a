"""Switches the device on in a process that a program on the virtual Mac has started."""

from __future__ import annotations

import os
import sys
from multiprocessing.queues import Queue
from typing import Any, Final

import torch

from anymps._errors import AnympsError
from anymps._text import tell
from anymps.device._enable import enable, native
from anymps.device._gpus import RANK_VARIABLE
from anymps.device._start_method import SYSTEM, give_to_children, leave_mark_of
from anymps.mac import Mac

_WAITS_FOR_EVER: Final = "a Mac prints this only in the worker, and the loop waits forever"


def switch_on(mac: Mac, method: str, mark: str, rank: str) -> None:
    """Have the parent's device, and leave `mark` when it is used. Where that fails the process goes on without.

    `rank` tells processes that share NVIDIA GPUs apart; empty for one that has its parent's GPU.
    """
    leave_mark_of(mark)
    if rank:
        os.environ[RANK_VARIABLE] = rank
    try:
        enable(mac, quiet=True, start_method=method)
        if method == SYSTEM:
            give_to_children(mac)
        native().mark_first_use(mark)
        _tell_of_unsent_batches()
    except AnympsError as error:
        tell(error)


def _tell_of_unsent_batches() -> None:
    """Have a worker that cannot send a batch send what torch said to it: the loop then raises that.

    A worker hands its batches over from a thread of its queue. Where that fails Python prints the traceback and goes
    on, and the process that iterates waits for ever (multiprocessing/queues.py, Python 3.10 to 3.13).
    """
    queue: Any = Queue
    original = queue._on_queue_feeder_error

    def failed(self: Any, error: Exception, sent: Any) -> None:
        original(error, sent)
        said = _said(error)
        worker = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
        if said and worker is not None and isinstance(sent, tuple) and len(sent) == 2:
            wrapper: Any = torch._utils.ExceptionWrapper
            raised = RuntimeError(f"{said} ({_WAITS_FOR_EVER})")
            where = f"in DataLoader worker process {worker.id}"
            self.put((sent[0], wrapper((RuntimeError, raised, error.__traceback__), where)))

    queue._on_queue_feeder_error = failed


def _said(error: Exception) -> str:
    """What torch says of memory that is not the CPU's; empty for any other error."""
    said = str(error)
    return said if isinstance(error, RuntimeError) and said.endswith("only available on CPU") else ""
