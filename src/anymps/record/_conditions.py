"""The SQL conditions by which queries of a recording select calls."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from anymps._vocabulary import Direction, Fate, Flag, Phase
from anymps.record.format import ON_CPU, ON_MPS


class Picked(NamedTuple):
    """Calls by what holds for their signature `s` with its operator `o` (`of`), and for their entry `e` (`condition`).

    `values` stand for the `?` in both, in order.
    """

    of: str = "TRUE"
    condition: str = "TRUE"
    values: tuple[object, ...] = ()


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


def operators(names: Collection[str], more: str = "TRUE") -> Picked:
    """Certain operators, of which `more` holds."""
    return Picked(of=f"o.name IN ({', '.join('?' * len(names))}) AND {more}", values=tuple(names))


def cpu_indices() -> Picked:
    """What was indexed with CPU tensors; a value of no dimension that is assigned is none."""
    names = ("aten::index.Tensor", "aten::index.Tensor_out", "aten::_index_put_impl_")
    return operators(names, "instr(replace(s.inputs, '[] on cpu', ''), ' on cpu')")


def at_sites(numbers: Collection[int]) -> Picked:
    """What ran at certain sites, marks of our own left out."""
    return Picked(of=f"s.fate <> {Fate.MARK:d}", condition=f"site IN ({', '.join(map(str, numbers))})")


def kernels_of(phase: Phase) -> Picked:
    """What ran in a kernel on mps in one phase."""
    return Picked(condition=f"{ON_MPS} AND phase = {phase:d} AND NOT flags & {Flag.VIEW:d}")


def with_dtype(dtype: str) -> Picked:
    """What took a tensor of a dtype on mps."""
    return Picked(of="instr(s.inputs, ?)", condition=ON_MPS, values=(f'"{dtype}[',))
