"""How much slower code runs when the caches were used for something else since.

Here the CPU computes the calls, and other programs run while they do. Both fill the caches, so what the program does
next takes several times as long. A Mac's GPU computes beside the host, whose caches stay its own. By how much that
code is slower tells a piece of Python that runs once a step, as the program's own does: its first run, and a second.

Measured on an Intel Xeon with Python 3.11, after 4 and 32 MB were read and after 5 ms in which others ran: the piece
takes 1.6 to 5.7 times as long, and beside it a backward 0.9 to 1.4 times that, AdamW's step 0.9 to 1.2 times, a call of
a module 1.5 to 2 times.
"""

from __future__ import annotations

import json
import time
from typing import Final

_write: Final = json.JSONEncoder(indent=1).encode  # with an indent, by Python alone
_TEXT: Final = {"a": [1, 2.5, "x"], "b": {"c": [None, True]}}


def cold_code() -> tuple[float, float]:
    """The microseconds of a first run of the piece, and of a second one at once, which takes no longer."""
    first, again = _piece(), _piece()
    return max(first, again, 1) / 1000, max(again, 1) / 1000


def _piece() -> int:
    """Processor time of this thread in ns, so that what others take of the core is not in it."""
    start = time.thread_time_ns()
    _write(_TEXT)
    return time.thread_time_ns() - start
