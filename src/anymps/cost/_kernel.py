"""The time of one kernel on a Mac, in seconds, from its work, the rates of the Mac and the coefficients.

The formulas take numbers or NumPy arrays alike: the fit evaluates all rows at once by the same lines.

    a product of matrices   compute = F * padding / (P * peak * dtype * k/(k + depth) * (tiles/(tiles + t*cores))^alpha)
    another kernel          compute = Q * operations / P
    a group for each result compute = numbers * 740 / (P * min(1, groups / cores))
    both                    memory = Q / (B * bandwidth)
                            kernel = change * (compute^3 + memory^3)^(1/3) + 0.35 * launch
    beyond the cache        at least Q / B; of a strided copy, a sector of 64 bytes for each number that is read
    an adding scatter       at least 4.5 us * additions to a cache line, by MPSGraph on M1 and M2

P is the peak float32 rate, B the bandwidth of the memory, F the operations, Q the bytes; `change` is what another
release of torch or family of GPUs takes in place of 1.
"""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from anymps._errors import CostError
from anymps.cost._classes import Work
from anymps.cost._coefficients import NEURAL, OWN_KERNEL, Coefficients, TorchRelease, change_group, dtype_group
from anymps.cost._tensors import ITEM_SIZES
from anymps.mac import Mac

LAUNCH_SHARE: Final = 0.35
"""How much of an empty kernel's time adds to that of a kernel that works: the rest overlaps."""

GROUP_OPERATIONS: Final = 740
"""What one number costs a kernel with a threadgroup for each result, in operations of its GPU core.

The kernel works out where each number lies. Source: 1.9 ns a weight in the `clip_grad_norm_` of six public trainings on
M4 and M4 Max with torch 2.12 to 2.14, alike on 10 and 40 cores, as one threadgroup runs on one core.
"""

CONFLICT: Final = 4.5e-6
"""Seconds of an addition by MPSGraph's scatters to a cache line to which others are added, on M1 and M2.

Source: 1e5 and 1e6 rows of 64 numbers onto 100 and 10 rows, M1 Pro (mlx issue 506): 4.5 and 5.9 us; 1e6 numbers onto 64
and 1,024 rows, M1 Ultra (mlx-benchmark): 4.2 and 3.7 us. A million onto two places end in a time-out on an M2 Max
(pytorch issue 111173). An M4 Pro (mlx-benchmark) has none of it, nor have PyTorch's own kernels, whose additions of
float32 are the GPU's own (pytorch pull request 187109).
"""

SECTOR: Final = 64
"""Bytes that pass the memory for a number that is read apart from its neighbours.

Source: copies of weights of 64 to 512 channels with their axes reversed, on an M5 Pro (pytorch pull request 193167):
28 MB, beyond the cache, take 1.7 ms; 68 bytes for each number are 0.93 of what its memory moves in that time.
"""

TILE: Final = 64
# Before torch 2.5 the gradient of a convolution's weight keeps the cores busy also where the weight is small, so its
# long sum must be cut as well: CIFAR ResNets of 16 to 64 channels train at 4,452 images a second on an M1 Pro (mlx
# issue 243), which uncut sums would halve. With torch 2.13 the time grows as the channels shrink (pytorch pull request
# 193191), so there it is not cut. The length is a judgement.
SUM_PIECE: Final = 4096


class Kernel(NamedTuple):
    """Times of one kernel in seconds: with the launch, and its arithmetic and its memory traffic alone."""

    seconds: float
    compute: float
    memory: float


def rates(mac: Mac) -> tuple[float, float]:
    """The peak float32 rate and the CPU's speed. Raises CostError where one is not known."""
    if mac.fp32_peak is None or mac.cpu_speed is None:
        raise CostError(f"anymps: no time can be predicted for {mac.chip}: its GPU clock is not public")
    return mac.fp32_peak, mac.cpu_speed


def matrix_compute(
    operations: float, padding: float, depth_use: float, tile_use: float, alpha: float, peak: float
) -> float:
    """Seconds of arithmetic of a product of matrices; `peak` in FLOP/s with the class's and the dtype's share."""
    used: float = tile_use**alpha
    return operations * padding / (peak * depth_use * used)


def neural_share(factor: float, depth: float, k: float) -> float:
    """How many times as fast as its ALUs an M5 multiplies half types, which its neural accelerators do for deep sums.

    At an inner size of `depth` they reach half of `factor`.
    """
    share: float = (1.0 + (factor * k / (k + depth)) ** 3) ** (1 / 3)
    return share


def kernel_seconds(compute: float, memory: float, change: float, launch: float) -> float:
    """Seconds of one kernel from those of its arithmetic and of its memory traffic, which overlap."""
    work: float = (compute**3 + memory**3) ** (1 / 3)
    return change * work + LAUNCH_SHARE * launch


def padding(work: Work) -> float:
    """What is computed beside the matrix, because it is cut into pieces of 32 x 32."""
    return ceil(work.m / 32) * 32 / work.m * (ceil(work.n / 32) * 32 / work.n)


def tiles(work: Work, release: TorchRelease) -> int:
    """Pieces of the work that the GPU's cores share: of the result, and where the sums are cut, of these."""
    pieces = ceil(work.m / TILE) * ceil(work.n / TILE) * work.batch
    cut = work.kind == "conv_weight" and release.number < (2, 5)
    return pieces * ceil(work.k / SUM_PIECE) if cut else pieces


def change_of(work: Work, mac: Mac, release: TorchRelease) -> str | None:
    """The group whose `change` a kernel has; None for none.

    A kernel of PyTorch's own is the same for all GPUs, and has nothing of what MPSGraph's took on older ones.

    Those of convolutions are of permuted inputs, as they were timed. A plain one is taken to be as on the newest
    releases, which is judgement: it comes closer to the public steps of two models.
    """
    if work.groups or (work.kind in ("conv", "conv1d") and not work.permuted):
        return None
    if work.own_since is not None and work.own_since <= release.number:
        return OWN_KERNEL
    return change_group(mac, release)


def conflict_seconds(work: Work, mac: Mac, release: TorchRelease) -> float:
    """What the additions to one cache line take, one after the other; 0 where they do not wait for each other."""
    own = work.own_since is not None and work.own_since <= release.number
    return 0.0 if own or mac.metal_family not in ("apple7", "apple8") else work.conflicts * CONFLICT


def least_seconds(work: Work, mac: Mac, release: TorchRelease) -> float:
    """What a kernel takes at least, however well it does otherwise.

    What does not fit into the cache passes the memory, and there a number that is read by itself takes a whole sector.
    """
    passing = float(work.size)
    if passing <= mac.system_cache_mib * 1024**2:
        passing = 0.0
    elif work.kind == "strided_copy":
        passing *= (1 + SECTOR / ITEM_SIZES[work.dtype]) / 2
    return max(passing / mac.memory_bandwidth, conflict_seconds(work, mac, release))


def kernel_time(work: Work, mac: Mac, release: TorchRelease, coefficients: Coefficients) -> Kernel:
    """The time of a kernel. Raises CostError where the Mac's rates, or those of the dtype, are not known."""
    peak, _ = rates(mac)
    group = change_of(work, mac, release)
    change = coefficients.change[work.kind][group] if group else 1.0
    launch = coefficients.launch[release.era] * 1e-6
    if work.kind in coefficients.matrix:
        row = coefficients.matrix[work.kind]
        factor = dtype_group(mac, work.dtype)
        share = coefficients.dtype[factor] if factor else 1.0
        if factor == NEURAL:
            share = neural_share(share, coefficients.neural_depth, work.k)
        if not work.operations:
            return Kernel(kernel_seconds(0.0, 0.0, change, launch), 0.0, 0.0)
        pieces = tiles(work, release)
        compute = matrix_compute(
            work.operations,
            padding(work),
            work.k / (work.k + row.depth),
            pieces / (pieces + row.tiles * mac.gpu_cores),
            coefficients.alpha,
            peak * row.peak * share,
        )
        bandwidth = row.bandwidth
    else:
        other = coefficients.kernel[work.kind]
        compute = work.size * other.operations / peak
        if work.groups:
            numbers = work.size / ITEM_SIZES[work.dtype]
            compute = numbers * GROUP_OPERATIONS / (peak * min(1.0, work.groups / mac.gpu_cores))
        bandwidth = other.bandwidth
    memory = work.size / (mac.memory_bandwidth * bandwidth)
    least = least_seconds(work, mac, release)
    seconds = max(kernel_seconds(compute, memory, change, launch), least)
    return Kernel(seconds, max(compute, conflict_seconds(work, mac, release)), memory)
