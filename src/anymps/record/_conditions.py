"""The SQL conditions by which queries of a recording select calls."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from anymps._vocabulary import Direction, Fate, Flag
from anymps.record.format import ON_CPU, ON_MPS, Picked

FALLBACKS: Final = Picked(of=ON_CPU)
"""What ran on the CPU."""

WAITS: Final = Picked(condition="wait <> 0")
"""What the host waited in, fallbacks and blocking copies among them."""

COPIES: Final = Picked(condition=f"direction IN ({Direction.CPU_TO_MPS:d}, {Direction.MPS_TO_CPU:d})")
"""Copies between CPU and device."""

HAZARDS: Final = Picked(of=f"s.fate = {Fate.MARK:d}", condition=f"flags & {Flag.HAZARD:d}")
"""Marks of known bugs."""

_REFUSED: Final = "SELECT entry FROM refusals WHERE entry IS NOT NULL"
LAST_RAISED: Final = Picked(
    condition=f"e.id = (SELECT MAX(id) FROM entries WHERE flags & {Flag.RAISED:d} AND id NOT IN ({_REFUSED}))"
)
"""The last call that ended with an exception which was no refusal of MPS."""

OF_THE_PROGRAM: Final = (
    f"NOT flags & {Flag.AUTOGRAD_THREAD:d} AND signature NOT IN (SELECT id FROM signatures WHERE fate = {Fate.MARK:d})"
)
"""Of an entry: neither of a thread of autograd nor a mark of our own."""

CONCURRENT: Final = Picked(
    condition="e.id IN (SELECT id FROM (SELECT id, thread, start_ns, LAG(thread) OVER time AS before, "
    f"LAG(start_ns + duration_ns) OVER time AS until FROM entries WHERE {OF_THE_PROGRAM} "
    "WINDOW time AS (ORDER BY start_ns)) WHERE thread <> before AND start_ns < until)"
)
"""What began while another thread was inside a call."""


def marks(prefix: str) -> Picked:
    """Marks of our own whose name starts with a prefix."""
    quoted = prefix.replace("'", "''")
    return Picked(of=f"s.fate = {Fate.MARK:d} AND substr(o.name, 1, {len(prefix)}) = '{quoted}'")


def operators(names: Collection[str]) -> Picked:
    """Certain operators."""
    return Picked(of=f"o.name IN ({', '.join('?' * len(names))})", values=tuple(names))


def at_sites(numbers: Collection[int]) -> Picked:
    """What ran at certain sites, marks of our own left out."""
    return Picked(of=f"s.fate <> {Fate.MARK:d}", condition=f"site IN ({', '.join(map(str, numbers))})")


def with_dtype(dtype: str) -> Picked:
    """What took a tensor of a dtype on mps."""
    return Picked(of="instr(s.inputs, ?)", condition=ON_MPS, values=(f'"{dtype}[',))
