"""The fit of the time model: parameters with priors, all kernels at once in arrays, least squares on logarithms.

A row of data is what was timed: one or more calls, on a Mac, by a release of torch, waited for once (`sync`), several
times (`sync 3`), or not, with many back to back (`pipe`). Each parameter is the logarithm of a coefficient and has a
Gaussian prior, so a class without data keeps what is known of its like. What a wait takes differs by up to four times
between tables of timings: each table has a factor of its own, which a prediction for another machine does not know.

Gradients of convolutions were hardly ever timed on their own, but they are most of a convolutional network's training.
So public step times of such networks are rows too (`STEPS`): what is left of a step, less all that is known, is theirs.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from step_tapes import read as read_tape

from anymps.cost._classes import Work
from anymps.cost._coefficients import ERAS, NEURAL, OWN_KERNEL, TorchRelease, dtype_group, torch_release
from anymps.cost._kernel import (
    change_of,
    kernel_seconds,
    least_seconds,
    matrix_compute,
    neural_share,
    padding,
    rates,
    tiles,
)
from anymps.cost._predict import QUICK_WAITS, dispatches_of, runs_own_kernel, works_of
from anymps.cost._tensors import OperatorCall
from anymps.mac import Mac, all_macs

TIMES = Path(__file__).parent / "times"
SIGMA = 0.22  # of a row's logarithm
SOFT = 1.5  # beyond so many of them a row pulls less (soft L1)
STEP = 1e-6

# Class: share of the peak, inner size at half of it, tiles a core, share of the bandwidth; prior means.
MATRIX = {
    "gemm": (0.80, 40, 3, 0.7),
    "linear_view": (0.75, 32, 2, 0.7),
    "bmm": (0.75, 24, 6, 0.7),
    "conv": (0.75, 16, 3, 0.8),
    "conv1d": (0.55, 60, 3, 0.6),
    "conv_input": (0.60, 40, 3, 0.7),
    "conv_weight": (0.60, 40, 3, 0.7),
}
# Class: share of the bandwidth; prior mean. Those bound by the cores' own work start with as much time of it. For
# few rows it is what 7.75 tokens a second of Mistral-7B, 14.48 GB each, take of an M5's 153.6 GB/s: 0.73
# (taneja-rohit/mac-ml-benchmark, results/raw/M5/framework_comparison.json at d4a5fd8).
KERNELS = {
    "elementwise": 0.75, "copy": 0.75, "strided_copy": 0.3, "blit": 0.35, "fill": 0.6, "reduce_all": 0.75,
    "reduce_inner": 0.7, "reduce_outer": 0.65, "reduce_first": 0.6, "argmax_inner": 0.3, "argmax_outer": 0.15,
    "softmax": 0.5, "softmax_backward": 0.4, "layer_norm": 0.4, "batch_norm": 0.45, "group_norm": 0.4,
    "norm_backward": 0.4, "gather": 0.2, "scatter": 0.2, "scatter_reduce": 0.3, "sort": 0.03, "sort_outer": 0.006,
    "scan": 0.5, "pool": 0.4, "few_rows": 0.75, "loss": 0.4, "random": 0.5, "conv_depthwise": 0.5, "median": 0.001,
    "grid_sample": 0.3,
}  # fmt: skip
BY_THE_CORES = ("gather", "scatter", "scatter_reduce", "sort", "sort_outer", "argmax_outer", "median")
# The memory alone limits these, so with today's graphs M1 and M2 have little of their own in them. Most of their
# pointwise timings with torch 2.5 and later are of an M1 Ultra, whose 96 MiB of cache hold what an M1 has to read.
BY_THE_MEMORY = ("elementwise", "copy", "blit", "fill")
GROUPS = (
    "torch 1.13 to 2.4, M1 and M2",
    "torch 1.13 to 2.4, M3 and later",
    "torch 2.5 and later, M1 and M2",
    OWN_KERNEL,
)
# What PyTorch's own kernel takes beside MPSGraph's before any timing is seen. Indexing became twice as fast with
# torch 2.8 (mlx-benchmark, M1 Ultra), the gradient of an embedding by 1.1 to 2 with 2.13 (185119). Sorting along
# another axis than the last takes a third longer than along it (1.58 against 1.20 ms for as much, on a chip that is not
# named: 180714). Its own norms read and write their rows once, as its softmax does; its median sorts them as its sort
# does, where MPSGraph's takes a thousand times as long as reading them: judgement.
OWN_KERNELS = {
    "gather": 0.5, "scatter": 0.5, "scatter_reduce": 0.6, "sort_outer": 0.5, "layer_norm": 0.5, "group_norm": 0.5,
    "median": 0.02,
}  # fmt: skip
DTYPES = {  # prior mean and standard deviation of the logarithm
    "float16": (1.05, 0.10),
    "bfloat16, emulated": (0.50, 0.20),
    "bfloat16, native": (0.96, 0.10),
    NEURAL: (4.5, 0.25),
    "float32, M5": (0.96, 0.10),
}
# Between what gradients of convolutions gain by bfloat16 on an M5 Pro (pytorch pull request 193191: sums of 1,024
# products 2.0, of 8,192 and more 4.2 to 5.3) and attention, whose sums are of 128 products (181575).
NEURAL_DEPTH = 500
ERA_NAMES = tuple(".".join(map(str, era)) for era in ERAS)
# What the host takes for a graph, and an empty kernel on the device. Graphs: 15.6 us on an unnamed chip with torch
# 2.14 (pytorch pull request 197000), whose own kernels take 3.0 and 5.7 us, launch included: that one is well known.
MICROSECONDS = {"host": (30, 20, 16), "launch": (10, 9, 5)}
KERNEL_HOST = 4.5
# Of a wait in any release: what follows the last kernel is the work of Metal and macOS. Tables of one release differ by
# up to four times, and those of another release lie among them.
WAIT = 185
# item() and a copy of 64 KB to 1 MB take 0.10 and 0.11 ms on an M4 Pro, all but a few us of it a wait (pytorch pull
# requests 182731 and 182749).
NEWER_CHIP = 0.45
VIEW = (5.0, 4.0, 3.0)  # of a view on the host: judgement, nothing public times it


def parameters() -> dict[str, tuple[float, float]]:
    """Every parameter's prior: mean and standard deviation of its logarithm."""
    found: dict[str, tuple[float, float]] = {
        "one": (0.0, 1e-9),
        "alpha": (np.log(0.5), 0.3),
    }
    for name, (peak, depth, share, bandwidth) in MATRIX.items():
        found[f"peak {name}"] = (np.log(peak), 0.25)
        found[f"depth {name}"] = (np.log(depth), 0.7)
        found[f"tiles {name}"] = (np.log(share), 0.7)
        found[f"bandwidth {name}"] = (np.log(bandwidth), 0.25)
    for name, bandwidth in KERNELS.items():
        found[f"bandwidth {name}"] = (np.log(bandwidth), 0.35)
        # 35 operations a byte is where the rates of these chips meet; a third of it to start with, not far from it.
        cores = 1.0 if name in BY_THE_CORES else 0.4
        found[f"operations {name}"] = (np.log(cores * 35 / bandwidth), 0.7)
    for name in (*MATRIX, *KERNELS):
        for group in GROUPS:
            mean = OWN_KERNELS.get(name, 1.0) if group == OWN_KERNEL else 1.0
            little = name in BY_THE_MEMORY and group == GROUPS[2]
            found[f"change {name} {group}"] = (np.log(mean), 0.1 if little else 0.45)
    for name, (mean, deviation) in DTYPES.items():
        found[f"dtype {name}"] = (np.log(mean), deviation)
    for name, means in MICROSECONDS.items():
        for era, mean in zip(ERA_NAMES, means, strict=True):
            found[f"{name} {era}"] = (np.log(mean), 0.2 if (name, era) == ("launch", "2.10") else 0.4)
    found["neural depth"] = (np.log(NEURAL_DEPTH), 0.3)
    found["kernel host"] = (np.log(KERNEL_HOST), 0.4)
    found["wait"] = (np.log(WAIT), 0.4)
    found["base chip"] = (np.log(1.3), 0.15)
    found["newer chip"] = (np.log(NEWER_CHIP), 0.15)
    for table in sorted({row.table for row in ROWS if row.mode == "sync"}):
        found[f"table {table}"] = (0.0, 0.35)
    return found


@dataclass(frozen=True)
class Row:
    """One timing."""

    source: str
    mac: Mac
    cores_stated: bool
    torch: str
    torch_stated: bool
    mode: str
    seconds: float
    text: str
    works: tuple[Work, ...]
    graphs: int
    own_kernels: int
    waits: int = 0
    network: str = ""  # whose step it is, if it is one

    @cached_property
    def release(self) -> TorchRelease:
        return torch_release(self.torch)

    @property
    def era(self) -> str:
        return self.release.era

    @property
    def kind(self) -> str:
        """The class that most of its time is of, by bytes and operations."""
        return max(self.works, key=lambda work: work.size + work.operations / 35).kind

    @property
    def table(self) -> str:
        """The table of timings that it stands in: one person's measurements of one machine."""
        return f"{self.source} {self.mac.id}"

    @cached_property
    def machine(self) -> str:
        return f"{self.mac.chip.removeprefix('Apple ')}, {self.mac.gpu_cores} cores"


def mac_of(chip: str, cores: str) -> Mac:
    """A Mac by the words of a file of timings; its memory makes no difference to times."""
    return next(m for m in all_macs() if m.chip == f"Apple {chip}" and m.gpu_cores == int(cores))


def read_steps() -> list[dict[str, str]]:
    """The public step times."""
    with (TIMES / "steps.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_rows(path: Path = TIMES / "operators.csv") -> list[Row]:
    """Read the timings; each row's Mac is found by chip and GPU cores."""
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            calls = [OperatorCall.parse(text) for text in line["calls"].split(" + ")]
            mac, release = mac_of(line["chip"], line["gpu_cores"]), torch_release(line["torch"])
            works = tuple(work for call in calls for work in works_of(call, release.number))
            own = [call for call in calls if runs_own_kernel(call, release)]
            graphs = sum(dispatches_of(call) for call in calls if call not in own)
            stated = (line["cores_stated"] == "yes", line["torch_stated"] == "yes")
            mode, _, waits = line["mode"].partition(" ")
            seconds = float(line["milliseconds"]) / 1e3
            rows.append(
                Row(line["source_url"], mac, stated[0], line["torch"], stated[1], mode, seconds, line["calls"],
                    works, graphs, len(own), int(waits or (mode == "sync")))
            )  # fmt: skip
    return rows


WITHOUT_CLASS = ("_assert_async",)  # of the tapes' calls
GRADIENTS = ("conv_input", "conv_weight")


def network_of(tape: str) -> str:
    """Whose step it is: the first word of its name."""
    return tape.partition("-")[0]


def step_calls(tape: str) -> list[tuple[OperatorCall, int]]:
    """The calls of a recorded step that have a class, with how often each comes."""
    counts = Counter(one.call for one in read_tape(tape) if one.call is not None and one.kind == "kernel")
    return [(call, count) for call, count in counts.items() if call.name not in WITHOUT_CLASS]


def read_step_rows() -> list[Row]:
    """The steps that hold gradients of convolutions, as rows."""
    rows = []
    for line in read_steps():
        release = torch_release(line["torch"])
        counted = [(call, works_of(call, release.number), count) for call, count in step_calls(line["tape"])]
        works = tuple(work for _, own, count in counted for _ in range(count) for work in own)
        if not any(work.kind in GRADIENTS for work in works):
            continue
        graphs = [one for one in counted if not runs_own_kernel(one[0], release)]
        rows.append(
            Row(line["source_url"], mac_of(line["chip"], line["gpu_cores"]), line["cores_stated"] == "yes",
                line["torch"], line["torch_stated"] == "yes", "step", float(line["milliseconds"]) / 1e3, line["tape"],
                works, sum(dispatches_of(call) * count for call, own, count in graphs if own),
                sum(count for call, _, count in counted if runs_own_kernel(call, release)),
                int(line["waits"]), network_of(line["tape"]))
        )  # fmt: skip
    return rows


ROWS = read_rows()
STEPS = read_step_rows()
PRIORS = parameters()
INDEX = {name: place for place, name in enumerate(PRIORS)}
MEANS = np.array([mean for mean, _ in PRIORS.values()])
DEVIATIONS = np.array([deviation for _, deviation in PRIORS.values()])
ROLES = ("peak", "depth", "tiles", "bandwidth", "operations", "change", "dtype", "launch", "alpha", "neural")


class Arrays:
    """Rows as arrays: which parameter each kernel reads in each role, its sizes and rates, and how often it runs."""

    def __init__(self, rows: list[Row]) -> None:
        counted = [(place, row, *pair) for place, row in enumerate(rows) for pair in Counter(row.works).items()]
        flat = [(place, row, work) for place, row, work, _ in counted]
        self.row_of = np.array([place for place, _, _ in flat])
        self.often = np.array([count for *_, count in counted])
        self.count = len(rows)
        self.matrix = np.array([work.kind in MATRIX for _, _, work in flat])
        number: dict[str, Any] = {
            "operations": [work.operations or 1 for _, _, work in flat],
            "padding": [padding(work) if work.operations else 1.0 for _, _, work in flat],
            "k": [work.k or 1 for _, _, work in flat],
            "tiles": [tiles(work, row.release) if work.operations else 1 for _, row, work in flat],
            "size": [work.size for _, _, work in flat],
            "peak": [rates(row.mac)[0] for _, row, _ in flat],
            "bandwidth": [row.mac.memory_bandwidth for _, row, _ in flat],
            "cores": [row.mac.gpu_cores for _, row, _ in flat],
            "least": [least_seconds(work, row.mac, row.release) for _, row, work in flat],
        }
        self.number = {name: np.array(values, dtype=float) for name, values in number.items()}
        self.place = np.array([self._places(row, work) for _, row, work in flat]).T
        self.neural = self.place[ROLES.index("neural")] == INDEX["neural depth"]
        self.host = np.array([INDEX[f"host {row.era}"] for row in rows])
        self.host_factor = np.array([row.graphs * 1e-6 / rates(row.mac)[1] for row in rows])
        self.kernel_host_factor = np.array([row.own_kernels * 1e-6 / rates(row.mac)[1] for row in rows])
        self.waits = np.array([1e-6 * row.waits for row in rows])
        self.base = np.array([INDEX["base chip" if row.mac.is_base_chip else "one"] for row in rows])
        newer = [row.mac.generation >= QUICK_WAITS for row in rows]
        self.newer = np.array([INDEX["newer chip" if new else "one"] for new in newer])
        self.table = np.array([INDEX.get(f"table {row.table}", INDEX["one"]) for row in rows])
        self.measured = np.log([row.seconds for row in rows])

    @staticmethod
    def _places(row: Row, work: Work) -> list[int]:
        matrix = work.kind in MATRIX
        group = change_of(work, row.mac, row.release)
        dtype = dtype_group(row.mac, work.dtype) if matrix else None
        names = (
            f"peak {work.kind}" if matrix else "one",
            f"depth {work.kind}" if matrix else "one",
            f"tiles {work.kind}" if matrix else "one",
            f"bandwidth {work.kind}",
            "one" if matrix else f"operations {work.kind}",
            f"change {work.kind} {group}" if group else "one",
            f"dtype {dtype}" if dtype else "one",
            f"launch {row.era}",
            "alpha",
            "neural depth" if dtype == NEURAL else "one",
        )
        return [INDEX[name] for name in names]

    def kernels(self, values: Any) -> Any:
        """Seconds of every kernel in all its runs; `values` has a row for each of ROLES."""
        peak, depth, share, bandwidth, operations, change, dtype, launch, alpha, neural = np.exp(values)
        n = self.number
        matrix = matrix_compute(
            n["operations"],
            n["padding"],
            n["k"] / (n["k"] + depth),
            n["tiles"] / (n["tiles"] + share * n["cores"]),
            alpha,
            n["peak"] * peak * np.where(self.neural, neural_share(dtype, neural, n["k"]), dtype),
        )
        compute = np.where(self.matrix, matrix, n["size"] * operations / n["peak"])
        seconds = kernel_seconds(compute, n["size"] / (n["bandwidth"] * bandwidth), change, launch * 1e-6)
        return self.often * np.maximum(seconds, n["least"])

    def predict(self, x: Any) -> Any:
        """The logarithm of every row's seconds."""
        device = np.bincount(self.row_of, self.kernels(x[self.place]), self.count)
        return np.log(self._rows(x, device))

    def _rows(self, x: Any, device: Any) -> Any:
        return _queue_seconds(sum(self._hosts(x)), device) + self._waits(x)

    def _waits(self, x: Any) -> Any:
        """Seconds of every row's waits."""
        return self.waits * np.exp(x[INDEX["wait"]] + x[self.base] + x[self.newer] + x[self.table])

    def _hosts(self, x: Any) -> tuple[Any, Any]:
        """Seconds of every row's dispatches: those of graphs, and those of PyTorch's own kernels."""
        own = self.kernel_host_factor * np.exp(x[INDEX["kernel host"]])
        return self.host_factor * np.exp(x[self.host]), own

    def jacobian(self, x: Any) -> Any:
        """Derivatives of `predict`: a kernel reads one parameter in each role, so one step a role is enough."""
        values = x[self.place]
        before = self.kernels(values)
        device = np.bincount(self.row_of, before, self.count)
        graphs, own = self._hosts(x)
        host = graphs + own
        waits = self._waits(x)
        queue = _queue_seconds(host, device)
        total = queue + waits
        width = len(x)
        found = np.zeros(self.count * width)
        by_device = (device / queue) ** 3 / total
        for role in range(len(ROLES)):
            moved = values.copy()
            moved[role] += STEP
            slope = (self.kernels(moved) - before) / STEP * by_device[self.row_of]
            found += np.bincount(self.row_of * width + self.place[role], slope, found.size)
        rows = np.arange(self.count) * width
        by_host = (host / queue) ** 3 / total
        found += np.bincount(rows + self.host, by_host * graphs, found.size)
        found += np.bincount(rows + INDEX["kernel host"], by_host * own, found.size)
        for place in (INDEX["wait"], self.base, self.newer, self.table):
            found += np.bincount(rows + place, waits / total, found.size)
        return found.reshape(self.count, width)


def _queue_seconds(host: Any, device: Any) -> Any:
    """Seconds until a queue is done that the host fills in `host` and the device empties in `device` seconds."""
    return (host**4 + device**4) ** 0.25


def fit(rows: list[Row], steps: list[Row]) -> Any:
    """The parameters that fit these timings and steps best: damped Gauss-Newton steps on reweighted squares.

    Tables whose rows are not among them keep a factor of one.
    """
    arrays = Arrays([*rows, *steps])

    def cost(x: Any) -> float:
        off = (arrays.predict(x) - arrays.measured) / SIGMA
        rows = 2 * SOFT**2 * (np.sqrt(1 + (off / SOFT) ** 2) - 1)
        return float(np.sum(rows) + np.sum(((x - MEANS) / DEVIATIONS) ** 2))

    x, damping = MEANS.copy(), 1e-2
    best = cost(x)
    for _ in range(80):
        off = (arrays.predict(x) - arrays.measured) / SIGMA
        weight = 1 / np.sqrt(1 + (off / SOFT) ** 2)
        slopes = arrays.jacobian(x) / SIGMA
        hessian = slopes.T @ (weight[:, None] * slopes) + np.diag(1 / DEVIATIONS**2)
        gradient = slopes.T @ (weight * off) + (x - MEANS) / DEVIATIONS**2
        while damping < 1e6:
            trial = x - np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            value = cost(trial)
            if value <= best:
                break
            damping *= 4
        else:
            break
        gained, x, best, damping = best - value, trial, value, damping / 4
        if gained < 1e-6 * best:
            break
    return x


def as_data(x: Any, rows: list[Row]) -> dict[str, Any]:
    """The coefficients as `coefficients.json` has them, rounded to four digits."""

    def value(name: str) -> float:
        return float(f"{np.exp(x[INDEX[name]]):.4g}")

    timed = Counter(kind for row in rows for kind in {work.kind for work in row.works})
    chips = {(work.kind, row.mac.chip) for row in rows for work in row.works}
    return {
        "common": {
            "alpha": value("alpha"),
            "wait": value("wait"),
            "wait_base_chip": value("base chip"),
            "wait_newer_chip": value("newer chip"),
            "kernel_host": value("kernel host"),
            "neural_depth": value("neural depth"),
        },
        "matrix": {
            name: {role: value(f"{role} {name}") for role in ("peak", "depth", "tiles", "bandwidth")} for name in MATRIX
        },
        "kernel": {name: {role: value(f"{role} {name}") for role in ("bandwidth", "operations")} for name in KERNELS},
        "change": {name: {group: value(f"change {name} {group}") for group in GROUPS} for name in (*MATRIX, *KERNELS)},
        "dtype": {name: value(f"dtype {name}") for name in DTYPES},
        "microseconds": {
            **{name: {era: value(f"{name} {era}") for era in ERA_NAMES} for name in MICROSECONDS},
            "view": dict(zip(ERA_NAMES, VIEW, strict=True)),
        },
        "rows": {name: timed[name] for name in (*MATRIX, *KERNELS)},
        "chips": {name: sorted(chip for kind, chip in chips if kind == name) for name in (*MATRIX, *KERNELS)},
    }
