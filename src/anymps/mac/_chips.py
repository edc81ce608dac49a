"""The Apple chips that were sold in Macs: cores, rates and memory sizes, each row with its sources and its inferences.

Peak float32 rate = GPU cores x 128 lanes x 2 (fused multiply-add) x clock (128 lanes a core: the README of
philipturner/metal-benchmarks). Float16 has the same peak on M1 to M4 (same README: 102.5 against 101.7 matrix
multiply-adds a core and cycle). Bfloat16 is emulated before the Apple9 family (0.43 of the float32 peak in `torch.mm`,
zzc0721/torch-performance-test-data issue 191). Not in the table because no sale is documented: M4 Ultra, M5 Ultra, M6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

BFloat16 = Literal["native", "emulated"]

SOURCES: Final[dict[str, str]] = {
    "apple-m4": "https://www.macrumors.com/2024/10/30/apple-announces-m4-max-chip/",
    "apple-m5": "https://www.macrumors.com/2026/03/03/"
    "apple-unveils-macbook-pro-with-m5-pro-and-m5-max-chips-with-neural-accelerators/",
    "applegpuinfo": "https://github.com/philipturner/applegpuinfo",
    "geekbench": "https://browser.geekbench.com/mac-benchmarks",
    "feedback-830": "https://github.com/feedback-assistant/reports/issues/830",
    "hmc-tech": "https://www.hmc-tech.com",
    "huggingface": "https://github.com/huggingface/huggingface.js/pull/1937",
    "macbook-neo": "https://thedailyscout.com/s/zTRWTOxdEec",
    "metal-benchmarks": "https://github.com/philipturner/metal-benchmarks",
}
"""Where the rows come from; `huggingface` links Apple's specification pages for the memory sizes."""


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


CPU_SPEED: Final[dict[int, float]] = {1: 1.0, 2: 1.11, 3: 1.31, 4: 1.62, 5: 1.78}
"""Speed of one performance core by chip generation, M1 = 1: ratios of Geekbench 6 single-core scores (`geekbench`)."""


# fmt: off
CHIPS: Final[tuple[Chip, ...]] = (
    Chip(
        "m1-7", "Apple M1", 1, gpu_cores=7, cpu_performance_cores=4, cpu_efficiency_cores=4,
        memory_bandwidth=68_300_000_000, gpu_clock_mhz=1278, bfloat16="emulated", system_cache_mib=8,
        metal_family="apple7", architecture="applegpu_g13g", ram_gib=(8, 16),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-8", "Apple M1", 1, gpu_cores=8, cpu_performance_cores=4, cpu_efficiency_cores=4,
        memory_bandwidth=68_300_000_000, gpu_clock_mhz=1278, bfloat16="emulated", system_cache_mib=8,
        metal_family="apple7", architecture="applegpu_g13g", ram_gib=(8, 16),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-pro-14", "Apple M1 Pro", 1, gpu_cores=14, cpu_performance_cores=6, cpu_efficiency_cores=2,
        memory_bandwidth=204_800_000_000, gpu_clock_mhz=1296, bfloat16="emulated", system_cache_mib=24,
        metal_family="apple7", architecture="applegpu_g13s", ram_gib=(16, 32),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-pro-14-cpu10", "Apple M1 Pro", 1, gpu_cores=14, cpu_performance_cores=8, cpu_efficiency_cores=2,
        memory_bandwidth=204_800_000_000, gpu_clock_mhz=1296, bfloat16="emulated", system_cache_mib=24,
        metal_family="apple7", architecture="applegpu_g13s", ram_gib=(16, 32),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-pro-16", "Apple M1 Pro", 1, gpu_cores=16, cpu_performance_cores=8, cpu_efficiency_cores=2,
        memory_bandwidth=204_800_000_000, gpu_clock_mhz=1296, bfloat16="emulated", system_cache_mib=24,
        metal_family="apple7", architecture="applegpu_g13s", ram_gib=(16, 32),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-max-24", "Apple M1 Max", 1, gpu_cores=24, cpu_performance_cores=8, cpu_efficiency_cores=2,
        memory_bandwidth=409_600_000_000, gpu_clock_mhz=1296, bfloat16="emulated", system_cache_mib=48,
        metal_family="apple7", architecture="applegpu_g13c", ram_gib=(32, 64),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-max-32", "Apple M1 Max", 1, gpu_cores=32, cpu_performance_cores=8, cpu_efficiency_cores=2,
        memory_bandwidth=409_600_000_000, gpu_clock_mhz=1296, bfloat16="emulated", system_cache_mib=48,
        metal_family="apple7", architecture="applegpu_g13c", ram_gib=(32, 64),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-ultra-48", "Apple M1 Ultra", 1, gpu_cores=48, cpu_performance_cores=16, cpu_efficiency_cores=4,
        memory_bandwidth=819_200_000_000, gpu_clock_mhz=1296, bfloat16="emulated", system_cache_mib=96,
        metal_family="apple7", architecture="applegpu_g13d", ram_gib=(64, 128),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m1-ultra-64", "Apple M1 Ultra", 1, gpu_cores=64, cpu_performance_cores=16, cpu_efficiency_cores=4,
        memory_bandwidth=819_200_000_000, gpu_clock_mhz=1296, bfloat16="emulated", system_cache_mib=96,
        metal_family="apple7", architecture="applegpu_g13d", ram_gib=(64, 128),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-8", "Apple M2", 2, gpu_cores=8, cpu_performance_cores=4, cpu_efficiency_cores=4,
        memory_bandwidth=102_400_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=8,
        metal_family="apple8", architecture="applegpu_g14g", ram_gib=(8, 16, 24),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-10", "Apple M2", 2, gpu_cores=10, cpu_performance_cores=4, cpu_efficiency_cores=4,
        memory_bandwidth=102_400_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=8,
        metal_family="apple8", architecture="applegpu_g14g", ram_gib=(8, 16, 24),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-pro-16", "Apple M2 Pro", 2, gpu_cores=16, cpu_performance_cores=6, cpu_efficiency_cores=4,
        memory_bandwidth=204_800_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=24,
        metal_family="apple8", architecture="applegpu_g14s", ram_gib=(16, 32),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-pro-19", "Apple M2 Pro", 2, gpu_cores=19, cpu_performance_cores=8, cpu_efficiency_cores=4,
        memory_bandwidth=204_800_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=24,
        metal_family="apple8", architecture="applegpu_g14s", ram_gib=(16, 32),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-max-30", "Apple M2 Max", 2, gpu_cores=30, cpu_performance_cores=8, cpu_efficiency_cores=4,
        memory_bandwidth=409_600_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=48,
        metal_family="apple8", architecture="applegpu_g14c", ram_gib=(32, 64),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-max-38", "Apple M2 Max", 2, gpu_cores=38, cpu_performance_cores=8, cpu_efficiency_cores=4,
        memory_bandwidth=409_600_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=48,
        metal_family="apple8", architecture="applegpu_g14c", ram_gib=(32, 64, 96),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-ultra-60", "Apple M2 Ultra", 2, gpu_cores=60, cpu_performance_cores=16, cpu_efficiency_cores=8,
        memory_bandwidth=819_200_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=96,
        metal_family="apple8", architecture="applegpu_g14d", ram_gib=(64, 128, 192),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m2-ultra-76", "Apple M2 Ultra", 2, gpu_cores=76, cpu_performance_cores=16, cpu_efficiency_cores=8,
        memory_bandwidth=819_200_000_000, gpu_clock_mhz=1398, bfloat16="emulated", system_cache_mib=96,
        metal_family="apple8", architecture="applegpu_g14d", ram_gib=(64, 128, 192),
        sources=("applegpuinfo", "metal-benchmarks", "huggingface"),
        inferred=(),
    ),
    Chip(
        "m3-8", "Apple M3", 3, gpu_cores=8, cpu_performance_cores=4, cpu_efficiency_cores=4,
        memory_bandwidth=102_400_000_000, gpu_clock_mhz=1338, bfloat16="native", system_cache_mib=8,
        metal_family="apple9", architecture="applegpu_g15g", ram_gib=(8, 16, 24),
        sources=("applegpuinfo", "huggingface"),
        inferred=("system cache (as M1 and M2)",),
    ),
    Chip(
        "m3-10", "Apple M3", 3, gpu_cores=10, cpu_performance_cores=4, cpu_efficiency_cores=4,
        memory_bandwidth=102_400_000_000, gpu_clock_mhz=1338, bfloat16="native", system_cache_mib=8,
        metal_family="apple9", architecture="applegpu_g15g", ram_gib=(8, 16, 24),
        sources=("applegpuinfo", "huggingface"),
        inferred=("system cache (as M1 and M2)",),
    ),
    Chip(
        "m3-pro-14", "Apple M3 Pro", 3, gpu_cores=14, cpu_performance_cores=5, cpu_efficiency_cores=6,
        memory_bandwidth=153_600_000_000, gpu_clock_mhz=1380, bfloat16="native", system_cache_mib=12,
        metal_family="apple9", architecture="applegpu_g15s", ram_gib=(18, 36),
        sources=("applegpuinfo", "huggingface"),
        inferred=("system cache",),
    ),
    Chip(
        "m3-pro-18", "Apple M3 Pro", 3, gpu_cores=18, cpu_performance_cores=6, cpu_efficiency_cores=6,
        memory_bandwidth=153_600_000_000, gpu_clock_mhz=1380, bfloat16="native", system_cache_mib=12,
        metal_family="apple9", architecture="applegpu_g15s", ram_gib=(18, 36),
        sources=("applegpuinfo", "huggingface"),
        inferred=("system cache",),
    ),
    Chip(
        "m3-max-30", "Apple M3 Max", 3, gpu_cores=30, cpu_performance_cores=10, cpu_efficiency_cores=4,
        memory_bandwidth=307_200_000_000, gpu_clock_mhz=1380, bfloat16="native", system_cache_mib=48,
        metal_family="apple9", architecture="applegpu_g15c", ram_gib=(36, 96),
        sources=("applegpuinfo", "huggingface"),
        inferred=("system cache (as M1 and M2)",),
    ),
    Chip(
        "m3-max-40", "Apple M3 Max", 3, gpu_cores=40, cpu_performance_cores=12, cpu_efficiency_cores=4,
        memory_bandwidth=409_600_000_000, gpu_clock_mhz=1380, bfloat16="native", system_cache_mib=48,
        metal_family="apple9", architecture="applegpu_g15c", ram_gib=(48, 64, 128),
        sources=("applegpuinfo", "huggingface"),
        inferred=("system cache (as M1 and M2)",),
    ),
    Chip(
        "m3-ultra-60", "Apple M3 Ultra", 3, gpu_cores=60, cpu_performance_cores=20, cpu_efficiency_cores=8,
        memory_bandwidth=819_200_000_000, gpu_clock_mhz=1380, bfloat16="native", system_cache_mib=96,
        metal_family="apple9", architecture="applegpu_g15d", ram_gib=(96, 256),
        sources=("applegpuinfo", "huggingface"),
        inferred=("clock taken from the M3 Max", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m3-ultra-80", "Apple M3 Ultra", 3, gpu_cores=80, cpu_performance_cores=24, cpu_efficiency_cores=8,
        memory_bandwidth=819_200_000_000, gpu_clock_mhz=1380, bfloat16="native", system_cache_mib=96,
        metal_family="apple9", architecture="applegpu_g15d", ram_gib=(96, 256, 512),
        sources=("applegpuinfo", "huggingface"),
        inferred=("clock taken from the M3 Max", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m4-8", "Apple M4", 4, gpu_cores=8, cpu_performance_cores=4, cpu_efficiency_cores=4,
        memory_bandwidth=120_000_000_000, gpu_clock_mhz=1470, bfloat16="native", system_cache_mib=8,
        metal_family="apple9", architecture="applegpu_g16g", ram_gib=(16, 24),
        sources=("apple-m4", "hmc-tech", "huggingface"),
        inferred=("clock (1470 and 1578 MHz are both reported)", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m4-10", "Apple M4", 4, gpu_cores=10, cpu_performance_cores=4, cpu_efficiency_cores=6,
        memory_bandwidth=120_000_000_000, gpu_clock_mhz=1470, bfloat16="native", system_cache_mib=8,
        metal_family="apple9", architecture="applegpu_g16g", ram_gib=(16, 24, 32),
        sources=("apple-m4", "hmc-tech", "huggingface"),
        inferred=("clock (1470 and 1578 MHz are both reported)", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m4-pro-16", "Apple M4 Pro", 4, gpu_cores=16, cpu_performance_cores=8, cpu_efficiency_cores=4,
        memory_bandwidth=273_000_000_000, gpu_clock_mhz=1578, bfloat16="native", system_cache_mib=24,
        metal_family="apple9", architecture="applegpu_g16s", ram_gib=(24, 48, 64),
        sources=("apple-m4", "hmc-tech", "huggingface"),
        inferred=("clock (top state in dumps of the M4 family)", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m4-pro-20", "Apple M4 Pro", 4, gpu_cores=20, cpu_performance_cores=10, cpu_efficiency_cores=4,
        memory_bandwidth=273_000_000_000, gpu_clock_mhz=1578, bfloat16="native", system_cache_mib=24,
        metal_family="apple9", architecture="applegpu_g16s", ram_gib=(24, 48, 64),
        sources=("apple-m4", "hmc-tech", "huggingface"),
        inferred=("clock (top state in dumps of the M4 family)", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m4-max-32", "Apple M4 Max", 4, gpu_cores=32, cpu_performance_cores=10, cpu_efficiency_cores=4,
        memory_bandwidth=409_600_000_000, gpu_clock_mhz=1578, bfloat16="native", system_cache_mib=48,
        metal_family="apple9", architecture="applegpu_g16c", ram_gib=(36,),
        sources=("apple-m4", "hmc-tech", "huggingface"),
        inferred=("clock (top state in dumps of the M4 family)", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m4-max-40", "Apple M4 Max", 4, gpu_cores=40, cpu_performance_cores=12, cpu_efficiency_cores=4,
        memory_bandwidth=546_000_000_000, gpu_clock_mhz=1578, bfloat16="native", system_cache_mib=48,
        metal_family="apple9", architecture="applegpu_g16c", ram_gib=(48, 64, 128),
        sources=("apple-m4", "hmc-tech", "huggingface"),
        inferred=("clock (top state in dumps of the M4 family)", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m5-8", "Apple M5", 5, gpu_cores=8, cpu_performance_cores=4, cpu_efficiency_cores=6,
        memory_bandwidth=153_000_000_000, gpu_clock_mhz=1620, bfloat16="native", system_cache_mib=8,
        metal_family="apple10", architecture="applegpu_g17g", ram_gib=(16, 24, 32),
        sources=("apple-m5", "feedback-830", "huggingface"),
        inferred=("clock taken from the M5 Max", "the bin and its CPU cores", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m5-10", "Apple M5", 5, gpu_cores=10, cpu_performance_cores=4, cpu_efficiency_cores=6,
        memory_bandwidth=153_000_000_000, gpu_clock_mhz=1620, bfloat16="native", system_cache_mib=8,
        metal_family="apple10", architecture="applegpu_g17g", ram_gib=(16, 24, 32),
        sources=("apple-m5", "feedback-830", "huggingface"),
        inferred=("clock taken from the M5 Max", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m5-pro-16", "Apple M5 Pro", 5, gpu_cores=16, cpu_performance_cores=5, cpu_efficiency_cores=10,
        memory_bandwidth=307_000_000_000, gpu_clock_mhz=1620, bfloat16="native", system_cache_mib=24,
        metal_family="apple10", architecture="", ram_gib=(24, 48, 64),
        sources=("apple-m5", "feedback-830", "huggingface"),
        inferred=("clock taken from the M5 Max", "the bin and its CPU cores", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m5-pro-20", "Apple M5 Pro", 5, gpu_cores=20, cpu_performance_cores=6, cpu_efficiency_cores=12,
        memory_bandwidth=307_000_000_000, gpu_clock_mhz=1620, bfloat16="native", system_cache_mib=24,
        metal_family="apple10", architecture="", ram_gib=(24, 48, 64),
        sources=("apple-m5", "feedback-830", "huggingface"),
        inferred=("clock taken from the M5 Max", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m5-max-32", "Apple M5 Max", 5, gpu_cores=32, cpu_performance_cores=6, cpu_efficiency_cores=12,
        memory_bandwidth=460_000_000_000, gpu_clock_mhz=1620, bfloat16="native", system_cache_mib=48,
        metal_family="apple10", architecture="applegpu_g17s", ram_gib=(36,),
        sources=("apple-m5", "feedback-830", "huggingface"),
        inferred=("the pairing of bin and memory is not confirmed", "system cache (as M1 and M2)"),
    ),
    Chip(
        "m5-max-40", "Apple M5 Max", 5, gpu_cores=40, cpu_performance_cores=6, cpu_efficiency_cores=12,
        memory_bandwidth=614_000_000_000, gpu_clock_mhz=1620, bfloat16="native", system_cache_mib=48,
        metal_family="apple10", architecture="applegpu_g17s", ram_gib=(48, 64, 128),
        sources=("apple-m5", "feedback-830", "huggingface"),
        inferred=("system cache (as M1 and M2)",),
    ),
    Chip(
        "a18-pro-5", "Apple A18 Pro", 18, gpu_cores=5, cpu_performance_cores=2, cpu_efficiency_cores=4,
        memory_bandwidth=60_000_000_000, gpu_clock_mhz=0, bfloat16="native", system_cache_mib=0,
        metal_family="apple9", architecture="", ram_gib=(8,),
        sources=("macbook-neo",),
        inferred=("GPU clock and cache size unknown",),
    ),
)
# fmt: on
