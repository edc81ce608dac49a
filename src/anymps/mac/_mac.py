"""A Mac as the MPS backend sees it: one chip bin, one memory size, one macOS, and the limits that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from anymps._errors import MacError
from anymps.mac._chips import BFloat16, Chip, chip_table
from anymps.mac._working_set import NEWEST_MACOS, max_buffer_length, recommended_max_memory, unconfirmed

DEFAULT_MACOS: Final = (26, 4)
"""macOS of a Mac whose text names none: accepted by torch 2.11 to 2.15, sold with or installable on every chip from M1
to M5, and backed by public working-set readings (26.4 and 26.4.1)."""

_OLDEST_MACOS: Final[dict[int, int]] = {4: 15, 5: 26, 18: 26}  # by chip generation: launched after that macOS


@dataclass(frozen=True)
class Mac:
    """One Mac.

    Units: `ram_gib` in GiB, `memory_bandwidth` in bytes/s, `fp32_peak` in FLOP/s (None if the clock is unknown),
    `recommended_max_memory` and `max_buffer_length` in bytes, `other_memory`, what other programs take, too; `macos` as
    (major, minor), `wired_limit_mb` in MiB (0: the system's default). `bfloat16` is True if the GPU computes it
    natively. `sources` are public addresses; `inferred` names the values that no source states.
    """

    id: str
    chip: str
    generation: int
    gpu_cores: int
    cpu_performance_cores: int
    cpu_efficiency_cores: int
    ram_gib: int
    macos: tuple[int, int]
    memory_bandwidth: int
    fp32_peak: float | None
    bfloat16: BFloat16
    metal_family: str
    architecture: str
    system_cache_mib: int
    recommended_max_memory: int
    max_buffer_length: int
    wired_limit_mb: int = 0
    other_memory: int = 0
    sources: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()

    @property
    def cpu_cores(self) -> int:
        """CPU cores of both kinds."""
        return self.cpu_performance_cores + self.cpu_efficiency_cores

    @property
    def cpu_speed(self) -> float | None:
        """Speed of one performance core, that of an M1 being 1; None where no public score was read."""
        return chip_table().cpu_speed.get(self.generation)

    @property
    def is_base_chip(self) -> bool:
        """Whether the chip has neither Pro, Max nor Ultra in its name."""
        return " " not in self.chip.removeprefix("Apple ")

    @property
    def ram(self) -> int:
        """Unified memory in bytes."""
        return self.ram_gib * 1024**3

    @property
    def room(self) -> int:
        """Bytes that a process can use without paging: the working set, or what other programs leave of the memory."""
        return max(0, min(self.recommended_max_memory, self.ram - self.other_memory))

    @property
    def name(self) -> str:
        """Short name that `parse_mac` reads back to the same chip and memory: `M3 Pro 18GB`."""
        return f"{self.chip.removeprefix('Apple ')} {self.ram_gib}GB"

    @property
    def assumed(self) -> str:
        """What is taken for granted because its macOS is newer than any known one; empty if it is not."""
        return unconfirmed(self.ram_gib, self.macos) if self.macos[0] > NEWEST_MACOS else ""

    def describe(self) -> str:
        """One line with the limits: `Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4: working set 13.32 GiB, ...`."""
        gib = 1024**3
        raised = f" (iogpu.wired_limit_mb={self.wired_limit_mb})" if self.wired_limit_mb else ""
        return (
            f"{self.chip} ({self.gpu_cores}-core GPU), {self.ram_gib} GB, macOS {self.macos[0]}.{self.macos[1]}: "
            f"working set {self.recommended_max_memory / gib:.2f} GiB{raised}, "
            f"largest buffer {self.max_buffer_length / gib:.2f} GiB, "
            f"{self.memory_bandwidth / 1e9:g} GB/s, bfloat16 {self.bfloat16}{self.assumed and f'; {self.assumed}'}"
        )

    def with_wired_limit(self, megabytes: int) -> Mac:
        """The same Mac after `sysctl iogpu.wired_limit_mb=<megabytes>` (0 restores the default).

        Raises MacError if the limit is negative or above the memory.
        """
        if not 0 <= megabytes <= self.ram_gib * 1024:
            raise MacError(
                f"anymps: iogpu.wired_limit_mb={megabytes} is outside 0 to {self.ram_gib * 1024} on {self.name}"
            )
        return replace(
            self,
            wired_limit_mb=megabytes,
            recommended_max_memory=recommended_max_memory(self.ram_gib, self.macos, megabytes),
        )


def build_mac(chip: Chip, ram_gib: int, macos: tuple[int, int] = DEFAULT_MACOS) -> Mac:
    """The Mac of a chip bin, a memory size in GiB and a macOS.

    Raises MacError if the bin was not sold with that memory or cannot run that macOS, or if nothing is known of it.
    """
    name = chip.name.removeprefix("Apple ")
    if ram_gib not in chip.ram_gib:
        sizes = ", ".join(f"{size}GB" for size in chip.ram_gib)
        raise MacError(f'anymps: there is no Mac "{name} {chip.gpu_cores}-core {ram_gib}GB"; this variant has {sizes}')
    _check_macos(chip, macos)
    note = unconfirmed(ram_gib, macos)
    return Mac(
        id=chip.id,
        chip=chip.name,
        generation=chip.generation,
        gpu_cores=chip.gpu_cores,
        cpu_performance_cores=chip.cpu_performance_cores,
        cpu_efficiency_cores=chip.cpu_efficiency_cores,
        ram_gib=ram_gib,
        macos=macos,
        memory_bandwidth=chip.memory_bandwidth,
        fp32_peak=chip.fp32_peak,
        bfloat16=chip.bfloat16,
        metal_family=chip.metal_family,
        architecture=chip.architecture,
        system_cache_mib=chip.system_cache_mib,
        recommended_max_memory=recommended_max_memory(ram_gib, macos),
        max_buffer_length=max_buffer_length(ram_gib, macos),
        sources=tuple(chip_table().sources[key] for key in chip.sources),
        inferred=(*chip.inferred, note) if note else chip.inferred,
    )


def all_macs(macos: tuple[int, int] = DEFAULT_MACOS) -> tuple[Mac, ...]:
    """Every bin with every memory size that can run that macOS, oldest chip first, then by GPU cores and memory."""
    return tuple(
        build_mac(chip, ram, macos)
        for chip in chip_table().chips
        if macos[0] >= _OLDEST_MACOS.get(chip.generation, 14)
        for ram in chip.ram_gib
    )


def _check_macos(chip: Chip, macos: tuple[int, int]) -> None:
    """Raise MacError unless torch 2.11 to 2.15 can meet this macOS on this chip."""
    text = f"macOS {macos[0]}.{macos[1]}"
    if macos[0] < 14:
        # pytorch: "The MPS backend is supported on macOS 14.0+." (2.15: 15.0+)
        raise MacError(f"anymps: {text} is too old: torch 2.11 to 2.14 need macOS 14, torch 2.15 needs macOS 15")
    if 16 <= macos[0] <= 25:
        raise MacError(f"anymps: there is no {text}: macOS 15 is followed by macOS 26")
    oldest = _OLDEST_MACOS.get(chip.generation, 14)
    if macos[0] < oldest:
        raise MacError(f"anymps: {chip.name} does not run {text}: the chip came out with macOS {oldest}")
