"""The formulas: from the work of a kernel, the rates of a Mac and the coefficients to seconds.

They hold numbers or NumPy arrays alike: the fit evaluates all rows at once by the same lines.

    a product of matrices   compute = F * padding / (P * peak * dtype * k/(k + depth) * (tiles/(tiles + t*cores))^alpha)
    another kernel          compute = Q * operations / P
    both                    memory = Q / (B * bandwidth)
                            kernel = change * (compute^3 + memory^3)^(1/3) + 0.35 * launch

P is the peak float32 rate, B the bandwidth of the memory, F the operations, Q the bytes; `change` is what another
release of torch or family of GPUs takes in place of 1.
"""

from __future__ import annotations

LAUNCH_SHARE = 0.35
"""How much of an empty kernel's time adds to that of a kernel that works: the rest overlaps."""


def matrix_compute(
    operations: float, padding: float, depth_use: float, tile_use: float, alpha: float, peak: float
) -> float:
    """Seconds of arithmetic of a product of matrices; `peak` in FLOP/s with the class's and the dtype's share."""
    used: float = tile_use**alpha
    return operations * padding / (peak * depth_use * used)


def kernel_seconds(compute: float, memory: float, change: float, launch: float) -> float:
    """Seconds of one kernel from those of its arithmetic and of its memory traffic, which overlap."""
    work: float = (compute**3 + memory**3) ** (1 / 3)
    return change * work + LAUNCH_SHARE * launch


def queue_seconds(host: float, device: float) -> float:
    """Seconds until a queue is done that the host fills in `host` and the device empties in `device` seconds."""
    together: float = (host**4 + device**4) ** 0.25
    return together
