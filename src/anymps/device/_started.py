"""Switches the device on in a process that a program on the virtual Mac has started."""

from __future__ import annotations

import os

from anymps._errors import AnympsError
from anymps._text import tell
from anymps.device._enable import enable, native
from anymps.device._gpus import RANK_VARIABLE
from anymps.device._sharing import tell_of_unsent_batches
from anymps.device._start_method import SYSTEM, give_to_children, leave_mark_of
from anymps.mac import Mac


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
        tell_of_unsent_batches()
    except AnympsError as error:
        tell(error)
