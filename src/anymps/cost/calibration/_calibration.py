"""What one machine was calibrated to, and the coefficients that follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from anymps.cost._coefficients import FILE, Coefficients, Transfer, torch_release


@dataclass(frozen=True)
class Calibration:
    """What one machine's timings show: kept for its chip, its number of GPU cores and a release of torch (`2.13`).

    `microseconds` replaces the host's times for this era of torch (`host`, `kernel_host`, `view`, `wait`: as on an M1's
    CPU and on a larger chip). `classes` and `dtypes` are factors on the times of the kernels of a class, and of
    products of a dtype. `timings` counts the timings of each class; a class without any has the median factor of the
    others. `date` is such as `2026-11-14`, and `coefficients` identifies the coefficients that the factors apply to.
    """

    chip: str
    gpu_cores: int
    torch: str
    date: str
    microseconds: dict[str, float]
    transfer: Transfer
    classes: dict[str, float]
    dtypes: dict[str, float]
    timings: dict[str, int]
    coefficients: str


def calibrated(coefficients: Coefficients, calibration: Calibration, told: str = "") -> Coefficients:
    """The coefficients of the machine that was calibrated; `told` is the sentence on that."""
    era = torch_release(calibration.torch).era
    times = calibration.microseconds
    return replace(
        coefficients,
        host=_with(coefficients.host, era, times.get("host")),
        kernel_host=times.get("kernel_host", coefficients.kernel_host),
        view=_with(coefficients.view, era, times.get("view")),
        wait=times.get("wait", coefficients.wait),
        transfer=calibration.transfer,
        intervals={**coefficients.intervals, **({"wait": (1.0, 1.0)} if "wait" in times else {})},  # it was measured
        machine={**calibration.classes, **calibration.dtypes},
        calibration=told,
    )


def release_of(torch: str) -> str:
    """`2.13` of `2.13.0+cpu`."""
    return ".".join(torch.split(".")[:2])


def coefficients_name() -> str:
    """A name for the shipped coefficients: factors on them mean nothing beside others."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()[:12]


def _with(times: Mapping[str, float], era: str, measured: float | None) -> dict[str, float]:
    return {**times, **({} if measured is None else {era: measured})}
