"""The time of one call of an operator on a Mac, by given coefficients, and what widens intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from math import fsum
from typing import Final, Literal

from anymps._errors import CostError
from anymps.cost._by_release import PYTHON_RUNS, works_by_release
from anymps.cost._classes import VIEWS, Work, operands, plain_works
from anymps.cost._coefficients import Coefficients, TorchRelease
from anymps.cost._kernel import LAUNCH_SHARE, kernel_time, rates
from anymps.cost._matrix import matrix_work
from anymps.cost._tensors import OperatorCall, read_tensor
from anymps.mac import Mac
from anymps.rules import NEWEST, has_metal_kernel, metal_kernel_since

Bound = Literal["nothing", "launch", "compute", "bandwidth"]
"""What decides the time of a call."""

# Classes whose own kernels take another way than MPSGraph's; in all others both are bound by the memory alike.
_OTHERWISE: Final = frozenset(
    {
        "gather", "scatter", "scatter_reduce", "sort", "sort_outer", "scan", "argmax_inner", "argmax_outer",
        "reduce_all", "reduce_inner", "reduce_outer", "reduce_first", "softmax", "layer_norm", "group_norm",
        "median", "grid_sample",
    }
)  # fmt: skip
# Own kernels that became several times as fast. Indexing takes half of a GPU core's time with torch 2.8 (mlx-benchmark,
# M1 Ultra) of what it takes with 2.2 to 2.6 on any chip; pull request 185750 of pytorch (index_copy).
_REWRITTEN: Final = {"index": (2, 8), "index_put": (2, 8), "_index_put_impl": (2, 8), "index_copy": (2, 13)}

QUICK_WAITS: Final = 4
"""The first generation of chips on which a wait is quicker: with torch 2.9 the same script waits a third as long on an
M4 as on an M1 (Kornia's benchmark of both, macOS 26.5)."""

# MPS computes the gradients of the input and of the weight by a graph each.
_TWO_GRADIENTS: Final = ("linear_backward", "convolution_backward")
# A graph of one of these takes the host as long as two of a pointwise operator. A batch norm takes 32 us where a kernel
# of PyTorch's own takes 3.4 (pytorch pull request 183830, which times group norms that run as one); a convolution 29 to
# 34 us on an M5 Pro (193021), where the graph of a cumulative sum takes 12 (185609).
_LONG_GRAPHS: Final = ("convolution", "batch_norm", "layer_norm")

CALL: Final = 0.9e-6
"""Seconds of a bare call on an M1 before MPS has it: Python's and torch's part, which is in a timing of a dispatch too.

`torch.exp` of one number takes as long on the CPU of an M1 Pro in all, 1000 calls in a row (pytorch issue 148219). In a
recording of such a row, the program's own code before each call takes 0.8 to 1.3 us."""

TRANSFER: Final = 20e-6
"""Seconds of a copy before its first byte. A blocking copy takes 110 to 119 us for 64 KB to 1 MB on an M4 Pro (pytorch
pull request 182749), which is what a wait takes there. Kornia's benchmark of an M1 and an M4 leaves up to 60 us for a
copy beside its wait, 20 in the middle."""
_MEMCPY: Final = 50e9  # bytes a second: a memcpy on one core reaches 40 to 75 GB/s
_SMALL: Final = 1024**2
_LARGE_COPY: Final = 7e9
"""Bytes a second of a copy beyond `_SMALL`: as fast as tensors from a file in the cache are copied to the mps device of
an M5 Pro, 2 GB of them (safetensors pull request 756)."""

_TRANSFERS: Final = ("copy", "_to_copy", "to", "item", "_local_scalar_dense")


@dataclass(frozen=True)
class OperatorTime:
    """The predicted time of one call. Times in seconds.

    `device` is the time of the GPU's work, `low` and `high` its 80 % interval. `host` is the time in which the CPU
    dispatches the call, which overlaps with the GPU's work. `kind` is the class that takes most of the time, `rows` the
    number of public timings behind that class, and `bound` what limits the time.
    """

    device: float
    low: float
    high: float
    host: float
    kind: str
    bound: Bound
    rows: int


def works_of(call: OperatorCall, number: tuple[int, int] = NEWEST) -> tuple[Work, ...]:
    """The kernels of a call by a release of torch; none of a view.

    Raises CostError for an operator without a class, and where the tensors' texts cannot be read.
    """
    if call.name in VIEWS:
        return ()
    tensors = operands(call)
    if any(tensor.on_cpu for tensor in (*tensors.inputs, *tensors.outputs)):
        raise CostError(f"anymps: {call.operator} takes a tensor on the CPU: its time on mps is not predicted")
    if not tensors.inputs and not tensors.outputs:
        raise CostError(f"anymps: {call.operator} without tensors: its time is not predicted")
    if not tensors.outputs and not call.in_place:
        raise CostError(f"anymps: the results of {call.operator} were not recorded: its time is not predicted")
    try:
        works = works_by_release(call, tensors, number)
        if works is None:
            works = matrix_work(call, tensors)
        if works is None:
            works = plain_works(call, tensors)
    except (IndexError, ValueError):
        raise CostError(f"anymps: {call.operator} does not take these tensors: {', '.join(call.inputs)}") from None
    if works is None:
        raise CostError(f"anymps: {call.operator} has no class of cost: its time is not predicted")
    since = _REWRITTEN.get(call.name) or metal_kernel_since(call.name)
    return tuple(replace(work, own_since=since) for work in works) if since and works[-1].kind in _OTHERWISE else works


def operator_time(call: OperatorCall, mac: Mac, release: TorchRelease, coefficients: Coefficients) -> OperatorTime:
    """The time of one call. Raises CostError as `predict_operator` does."""
    _, speed = rates(mac)
    if call.name in VIEWS:
        return OperatorTime(0.0, 0.0, 0.0, coefficients.view[release.era] * 1e-6 / speed, "view", "nothing", 0)
    host = dispatch_seconds(call, mac, release, coefficients)
    moved = moved_bytes(call)
    if moved:
        return OperatorTime(0.0, 0.0, 0.0, transfer_seconds(moved), "transfer", "nothing", 0)
    works = works_of(call, release.number)
    kernels = [(kernel_time(work, mac, release, coefficients), work) for work in works]
    if not kernels:
        return OperatorTime(0.0, 0.0, 0.0, host, "view", "nothing", 0)
    longest, kind = max(kernels, key=lambda pair: pair[0].seconds)
    device = fsum(kernel.seconds for kernel, _ in kernels)
    launch = LAUNCH_SHARE * coefficients.launch[release.era] * 1e-6
    bound: Bound = "compute" if longest.compute > longest.memory else "bandwidth"
    if longest.seconds < 2 * launch:
        bound = "launch"
    group = "below 1 ms" if device < 1e-3 else "1 ms and above"
    low, high = widened(coefficients.intervals[group], coefficients.wider[kind.kind])
    rows = coefficients.rows[kind.kind]
    return OperatorTime(device, device * low, device * high, host, kind.kind, bound, rows)


def dispatch_seconds(call: OperatorCall | None, mac: Mac, release: TorchRelease, coefficients: Coefficients) -> float:
    """What the host takes to dispatch a call: less for a Metal kernel of PyTorch's own than through MPSGraph."""
    _, speed = rates(mac)
    if call is not None and runs_own_kernel(call, release):
        return coefficients.kernel_host * 1e-6 / speed
    return coefficients.host[release.era] * (dispatches_of(call) if call is not None else 1) * 1e-6 / speed


def dispatches_of(call: OperatorCall) -> int:
    """As how many graphs of a pointwise operator a call takes the host that has no Metal kernel."""
    return graphs_of(call) * (2 if any(name in call.name for name in _LONG_GRAPHS) else 1)


def graphs_of(call: OperatorCall) -> int:
    """How many graphs a call runs that has no Metal kernel: two where it makes the gradients of input and weight.

    That of the bias comes with the weight's. What Python runs as a row of operators counts as those. Raises CostError
    where a tensor's text cannot be read.
    """
    if call.name in PYTHON_RUNS:
        return PYTHON_RUNS[call.name]
    if call.name not in _TWO_GRADIENTS:
        return 1
    return max(1, sum(len(read_tensor(made).shape) > 1 for made in call.outputs))


def runs_own_kernel(call: OperatorCall, release: TorchRelease) -> bool:
    """Whether a call runs on a Metal kernel of PyTorch's own, of Inductor's or of the program, not on MPSGraph."""
    return call.operator.startswith("metal::") or has_metal_kernel(call.name, release.number)


def wait_seconds(mac: Mac, coefficients: Coefficients) -> float:
    """What one wait takes the host, the queue being empty: as long with any release of torch."""
    base = coefficients.wait_base_chip if mac.is_base_chip else 1.0
    newer = coefficients.wait_newer_chip if mac.generation >= QUICK_WAITS else 1.0
    return coefficients.wait * 1e-6 * base * newer


def transfer_seconds(size: int) -> float:
    """What a copy of so many bytes between CPU and mps takes, beside the wait of a blocking one."""
    return TRANSFER + min(size, _SMALL) / _MEMCPY + max(0, size - _SMALL) / _LARGE_COPY


def moved_bytes(call: OperatorCall) -> int:
    """Bytes that a copy moves between CPU and mps; 0 for what is no such copy."""
    if call.name not in _TRANSFERS:
        return 0
    tensors = [read_tensor(text) for text in (*call.inputs, *call.outputs)]
    places = {tensor.on_cpu for tensor in tensors}
    return max(tensor.size for tensor in tensors) if places == {True, False} else 0


def step_interval(gpu: float, waits: float, extra: float, coefficients: Coefficients) -> tuple[float, float]:
    """A step's interval, as factors, by what binds it.

    `gpu` is the GPU's share of the time that GPU and host decide between them, `waits` that of the waits themselves in
    the whole, which are known less well than either; `extra` is what widens it beside that, in logarithms.
    """
    found = []
    by_gpu, by_host, wait = (coefficients.intervals[name] for name in ("step, GPU", "step, host", "wait"))
    for of_gpu, of_host, of_wait in zip(by_gpu, by_host, wait, strict=True):
        usual = gpu * math.log(of_gpu) + (1.0 - gpu) * math.log(of_host)
        found.append(math.hypot(usual, waits * math.log(of_wait), extra))
    return math.exp(-found[0]), math.exp(found[1])


def widened(interval: tuple[float, float], extra: float) -> tuple[float, float]:
    """An interval, as factors, with what widens it in logarithms."""
    low, high = (math.hypot(math.log(factor), extra) for factor in interval)
    return math.exp(-low), math.exp(high)
