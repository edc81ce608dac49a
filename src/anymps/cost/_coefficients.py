"""The coefficients of the formulas: read from `coefficients.json`, which `benchmarks/fit_times.py` writes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from anymps._errors import CostError
from anymps._numbers import digits
from anymps.mac import Mac
from anymps.rules import NEWEST

FILE: Final = Path(__file__).with_name("coefficients.json")

ERAS: Final = ((1, 13), (2, 5), (2, 10))
"""Releases of torch from which on dispatch, launch and waits cost less: operators moved to native Metal kernels."""

OWN_KERNEL: Final = "own kernel of PyTorch"
"""The row of `change` factors of a class that PyTorch's own kernels work otherwise than MPSGraph."""

NEURAL: Final = "half types, M5"
"""The row of `dtype` factors of products that the neural accelerators of an M5's GPU compute."""


@dataclass(frozen=True)
class MatrixClass:
    """A class of products of matrices.

    `peak` and `bandwidth` are shares of the Mac's rates; at an inner size of `depth` half the peak is reached, and with
    `tiles` tiles of 64 x 64 a GPU core about three quarters of the rest.
    """

    peak: float
    depth: float
    tiles: float
    bandwidth: float


@dataclass(frozen=True)
class KernelClass:
    """A class of other kernels: the share of the bandwidth, and operations a byte that the ALUs spend."""

    bandwidth: float
    operations: float


class TorchRelease(NamedTuple):
    """A release of torch, (2, 13), and the era that it belongs to, named by its first release: `2.10`."""

    number: tuple[int, int]
    era: str


@dataclass(frozen=True)
class Coefficients:
    """All of them.

    `change` is by class and by what `change_group` answers; `dtype` by `dtype_group`, and with `neural_depth` for
    NEURAL (`neural_share`); the times are in microseconds on
    an M1's CPU by era of torch: `host` is a dispatch through MPSGraph, `kernel_host`, the same in all eras, one of a
    Metal kernel of PyTorch's own; that of a view is the same for both. A `wait` takes as long in all eras, with factors
    for some chips. `rows` counts the timings that a class rests on, `chips` has those that it was timed on, and `wider`
    is how much wider its interval is, in logarithms. In a step, that on another chip is wider by `new_chip`, too; an
    operator's own is always that of a chip left out. `intervals` are factors on a prediction, 10 % and 90 % quantiles:
    of an operator's time by its length, of a step that the GPU decides (`step, GPU`) or the host (`step, host`), of
    what a wait takes (`wait`), of the ratio between two Macs (`ratio`), which is wider by `between` in a class whose
    ratios are harder to predict, and of that between two Macs with the same chip (`ratio, one chip`).
    """

    matrix: dict[str, MatrixClass]
    kernel: dict[str, KernelClass]
    alpha: float
    change: dict[str, dict[str, float]]
    dtype: dict[str, float]
    neural_depth: float
    host: dict[str, float]
    kernel_host: float
    view: dict[str, float]
    launch: dict[str, float]
    wait: float
    wait_base_chip: float
    wait_newer_chip: float
    rows: dict[str, int]
    chips: dict[str, frozenset[str]]
    new_chip: float
    wider: dict[str, float]
    between: dict[str, float]
    intervals: dict[str, tuple[float, float]]


@cache
def shipped() -> Coefficients:
    """The coefficients that come with the package."""
    return from_json(json.loads(FILE.read_text(encoding="utf-8")))


def from_json(data: dict[str, Any]) -> Coefficients:
    """Read what `coefficients.json` holds."""
    times = data["microseconds"]
    return Coefficients(
        matrix={name: MatrixClass(**values) for name, values in data["matrix"].items()},
        kernel={name: KernelClass(**values) for name, values in data["kernel"].items()},
        alpha=data["common"]["alpha"],
        change=data["change"],
        dtype=data["dtype"],
        neural_depth=data["common"]["neural_depth"],
        host=times["host"],
        kernel_host=data["common"]["kernel_host"],
        view=times["view"],
        launch=times["launch"],
        wait=data["common"]["wait"],
        wait_base_chip=data["common"]["wait_base_chip"],
        wait_newer_chip=data["common"]["wait_newer_chip"],
        rows={name: int(number) for name, number in data["rows"].items()},
        chips={name: frozenset(chips) for name, chips in data["chips"].items()},
        new_chip=data["new_chip"],
        wider=data["wider"],
        between=data["between"],
        intervals={name: (low, high) for name, (low, high) in data["intervals"].items()},
    )


def torch_release(torch: str) -> TorchRelease:
    """Read `2.13`, or `2.13.0+cpu`, which is of the era `2.10`.

    Raises CostError for a text that is no release, and for one before 1.13.
    """
    match = re.match(r"(\d+)\.(\d+)", torch)
    if match is None:
        raise CostError(f"anymps: not a release of torch: {torch!r}")
    release = (digits(match[1]), digits(match[2]))
    if release < ERAS[0]:
        raise CostError(f"anymps: no times are predicted for torch {torch}: the data begin with torch 1.13")
    return TorchRelease(release, ".".join(map(str, max(era for era in ERAS if era <= release))))


def check_release(torch: str) -> str:
    """The release that a user names, in its short form: `2.11` for `2.11.0`.

    Raises CostError as `torch_release` does, and for a release newer than any that anymps knows.
    """
    release = torch_release(torch).number
    # A newer torch that is installed counts as the newest known; one that is only named is most likely a typo.
    if release > NEWEST:
        newest = ".".join(map(str, NEWEST))
        raise CostError(f"anymps: no times are predicted for torch {torch}: the newest known release is {newest}")
    return ".".join(map(str, release))


def change_group(mac: Mac, release: TorchRelease) -> str | None:
    """The group of releases and GPU families whose kernels differ from the newest ones; None for the newest."""
    old_gpu = mac.metal_family in ("apple7", "apple8")
    if release.era == "1.13":
        return "torch 1.13 to 2.4, M1 and M2" if old_gpu else "torch 1.13 to 2.4, M3 and later"
    return "torch 2.5 and later, M1 and M2" if old_gpu else None


def dtype_group(mac: Mac, dtype: str) -> str | None:
    """The row of `dtype` factors for a product of matrices: None for float32 before M5, whose factor is 1.

    Raises CostError for a dtype of whose products no public timing was found.
    """
    neural = mac.generation == 5
    if dtype == "float32":
        return "float32, M5" if neural else None
    if dtype == "float16":
        return NEURAL if neural else "float16"
    if dtype == "bfloat16":
        return NEURAL if neural else f"bfloat16, {mac.bfloat16}"
    raise CostError(f"anymps: no public timing of a product of {dtype} matrices on mps is known")
