"""The Apple chips that were sold in Macs: what is known of one, and `chips.toml`, which says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from anymps._tables import read_table, row

BFloat16 = Literal["native", "emulated"]


@dataclass(frozen=True)
class Chip:
    """One bin of one chip.

    `memory_bandwidth` is in bytes a second, `gpu_clock_mhz` is the top state in MHz (0: unknown), `system_cache_mib` in
    MiB (0: unknown), `ram_gib` the unified memory sizes on sale in GiB; `inferred` names what no source states.
    """

    id: str
    name: str
    generation: int
    gpu_cores: int
    cpu_performance_cores: int
    cpu_efficiency_cores: int
    memory_bandwidth: int
    gpu_clock_mhz: int
    bfloat16: BFloat16
    system_cache_mib: int
    metal_family: str
    architecture: str
    ram_gib: tuple[int, ...]
    sources: tuple[str, ...]
    inferred: tuple[str, ...]

    @property
    def fp32_peak(self) -> float | None:
        """Peak float32 rate of the ALUs in FLOP/s, or None where the clock is unknown."""
        if not self.gpu_clock_mhz:
            return None
        return self.gpu_cores * 128 * 2 * self.gpu_clock_mhz * 1e6


class ChipTable(NamedTuple):
    """Every bin of every chip, and two things that they share.

    `cpu_speed` is that of one performance core by chip generation, M1 = 1; `sources` are addresses by their short name.
    """

    chips: tuple[Chip, ...]
    cpu_speed: Mapping[int, float]
    sources: Mapping[str, str]


@lru_cache(maxsize=1)
def chip_table() -> ChipTable:
    """The table, read when a Mac is first asked for."""
    table = read_table(__file__, "chips.toml")
    bins = [{**chip, **one} for chip in table["chip"] for one in chip.pop("bins")]
    speed = {int(generation): ratio for generation, ratio in table["cpu_speed"].items()}
    return ChipTable(tuple(row(Chip, one) for one in bins), speed, table["sources"])
