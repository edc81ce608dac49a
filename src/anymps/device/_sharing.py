"""Batches on mps that a DataLoader worker cannot send: raises an error, where a Mac would wait forever.

A worker hands its batches over from a thread of its queue. Where that fails Python prints the traceback and goes on,
and the process that iterates gets nothing (multiprocessing/queues.py, `_on_queue_feeder_error`, Python 3.10 to 3.13).
"""

from __future__ import annotations

import multiprocessing.queues
import sys
from typing import Any, Final

import torch

_OURS: Final = "a Mac prints this only in the worker, and the loop waits forever"


def tell_of_unsent_batches() -> None:
    """Have a worker that cannot send a batch send what torch said to it; the loop then raises that."""
    queue: Any = multiprocessing.queues.Queue
    original = queue._on_queue_feeder_error

    def failed(self: Any, error: Exception, sent: Any) -> None:
        original(error, sent)
        said = _said(error)
        worker = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
        if said and worker is not None and isinstance(sent, tuple) and len(sent) == 2:
            wrapper: Any = torch._utils.ExceptionWrapper

            raised = RuntimeError(f"{said} ({_OURS})")
            where = f"in DataLoader worker process {worker.id}"
            self.put((sent[0], wrapper((RuntimeError, raised, error.__traceback__), where)))

    queue._on_queue_feeder_error = failed


def _said(error: Exception) -> str:
    """What torch says of memory that is not the CPU's; empty for any other error."""
    said = str(error)
    return said if isinstance(error, RuntimeError) and said.endswith("only available on CPU") else ""
