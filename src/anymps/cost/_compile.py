"""How long the graphs of a first step take to compile. The public data allow only a wide interval."""

from __future__ import annotations

from typing import Final, NamedTuple

from anymps.cost._kernel import rates
from anymps.mac import Mac

# Nine small networks on an M2 Pro with a build of torch 2.10: the first step's time by the graphs in the cache after
# it was 1.9 to 5.8 ms, 2.5 in the middle, the step itself included. Steps with some graphs more took 1.8 to 4.4 ms
# for each (dharvpat/pytorch-PRs, GCache-Issues/baseline.json at a3a7b9d). A log of early 2023 suggests more: nanoGPT's
# first iteration took 2.6 s on an M2, two evaluations included (simonw/public-notes issue 11). That the host's speed
# decides is a judgement.
_EACH: Final = (2.5e-3, 1.9e-3, 5.8e-3)
_THERE: Final = 1.11  # the speed of that Mac's CPU


class CompileTime(NamedTuple):
    """Seconds, and the interval that the public logs span."""

    seconds: float
    low: float
    high: float


def compile_time(graphs: int, mac: Mac) -> CompileTime:
    """How long a Mac takes to compile so many graphs. Raises CostError for a Mac whose speed is not known."""
    return CompileTime(*(each * graphs * _THERE / rates(mac)[1] for each in _EACH))
