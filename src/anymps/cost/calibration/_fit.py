"""Calibrating to one machine: from timings made there to factors on the coefficients, by medians. Pure Python.

A timing holds one coefficient more than the others: a view and a tiny call that of the host, a tiny call that is waited
for that of a wait, a copy that of the transfers, a large kernel that of its class. Each is solved for that coefficient
by the formulas of a prediction, and the median of the solutions is kept. So a fit is a closed form, and one timing that
is off moves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Final, Literal, NamedTuple

from anymps._errors import CostError
from anymps._text import percent
from anymps.cost._classes import VIEWS
from anymps.cost._coefficients import Coefficients, TorchRelease, Transfer, torch_release
from anymps.cost._formula import LAUNCH_SHARE, queue_seconds
from anymps.cost._kernel import kernel_time, rates
from anymps.cost._predict import dispatch_seconds, moved_bytes, operator_time, runs_own_kernel, wait_seconds, works_of
from anymps.cost._tensors import OperatorCall
from anymps.cost.calibration._calibration import Calibration, coefficients_name, release_of
from anymps.mac import Mac

Mode = Literal["pipe", "sync"]
"""Many calls back to back, or each call waited for."""

MOST_SPREAD: Final = 0.15
"""How far apart the quartiles of a timing's runs may lie, over their median: judgement."""

_FARTHEST: Final = 20.0  # times the prediction, or a part of it: such a timing is of something else
_TINY: Final = 1.0  # of the host's time: a kernel that is shorter tells of the host
_LONG: Final = 2.0  # of the host's time: a kernel that is longer tells of its class
_LEAST_COPY: Final = 1e-6  # seconds
_LARGE_COPY: Final = 1 << 22  # bytes from which on the rate decides


class Timed(NamedTuple):
    """A call that was timed on a machine.

    `seconds` is the median of its runs for one call, `spread` the distance between their quartiles divided by that
    median. `paged` is True if the machine swapped memory to disk meanwhile.
    """

    call: OperatorCall
    mode: Mode
    seconds: float
    spread: float = 0.0
    paged: bool = False


def refusal(timed: Timed, mac: Mac, torch: str, coefficients: Coefficients) -> str:
    """Why nothing is to be learnt from a timing, in a few words; empty if something is."""
    if timed.paged:
        return "the Mac was swapping memory to disk"
    if timed.spread > MOST_SPREAD:
        return f"the middle half of its runs spreads over {percent(timed.spread)} (at most {percent(MOST_SPREAD)})"
    try:
        expected = expected_seconds(timed.call, timed.mode, mac, torch, coefficients)
    except CostError as error:
        return error.reason
    if not timed.seconds > 0:
        return "it took no time"
    if not 1 / _FARTHEST < timed.seconds / expected < _FARTHEST:
        return f"it took {timed.seconds / expected:.3g} times what is predicted"
    return ""


def expected_seconds(call: OperatorCall, mode: Mode, mac: Mac, torch: str, coefficients: Coefficients) -> float:
    """What one such call is predicted to take. Raises CostError where that is not known."""
    release = torch_release(torch)
    time = operator_time(call, mac, release, coefficients)
    wait = wait_seconds(mac, coefficients) if mode == "sync" else 0.0
    return queue_seconds(time.host, time.device) + wait


def fit(timings: Iterable[Timed], mac: Mac, torch: str, date: str, coefficients: Coefficients) -> Calibration:
    """The calibration that follows from these timings; those with a `refusal` are left out.

    Raises CostError if half of them or more cannot be used, or if none measures the host or a wait.
    """
    every = list(timings)
    good = [timing for timing in every if not refusal(timing, mac, torch, coefficients)]
    if 2 * len(good) <= len(every):
        raise CostError(f"anymps: only {len(good)} of {len(every)} timings can be used: calibrate again on an idle Mac")
    solver = _Solver(mac, torch_release(torch), coefficients)
    microseconds = solver.host_times(good)
    transfer = solver.transfers(good)
    classes, dtypes, counts = solver.kernels(good)
    release = release_of(torch)
    chip = mac.chip.removeprefix("Apple ")
    return Calibration(
        chip, mac.gpu_cores, release, date, microseconds, transfer, classes, dtypes, counts, coefficients_name()
    )


class _Solver:
    """Solves timings for one coefficient each; what was found first is used by what comes after."""

    def __init__(self, mac: Mac, release: TorchRelease, coefficients: Coefficients) -> None:
        self._mac, self._release, self._stock = mac, release, coefficients
        _, self._speed = rates(mac)
        self._slower: dict[bool, float] = {True: 1.0, False: 1.0}  # dispatches here beside the shipped ones
        self._wait = wait_seconds(mac, coefficients)

    def host_times(self, timings: list[Timed]) -> dict[str, float]:
        """Microseconds of dispatches, a view and a wait. Raises CostError without a dispatch or a wait."""
        views = [timing.seconds for timing in timings if timing.call.name in VIEWS and timing.mode == "pipe"]
        tiny = [(timing, self._device(timing)) for timing in timings if self._is_tiny(timing)]
        factors: dict[bool, list[float]] = defaultdict(list)  # those of PyTorch's own kernels, and of graphs
        for timing, device in tiny:
            if timing.mode == "pipe" and timing.seconds > device:
                host = (timing.seconds**4 - device**4) ** 0.25
                factors[runs_own_kernel(timing.call, self._release)].append(host / self._stock_host(timing.call))
        if not factors:
            raise CostError("anymps: no timing of a dispatch can be used: calibrate again on an idle Mac")
        # Both are the same core's work: one kind that was not timed is as much slower, or quicker, as the other.
        known = {own: median(found) for own, found in factors.items()}
        self._slower = {own: known.get(own, known.get(not own, 1.0)) for own in (True, False)}
        waits = [
            timing.seconds - queue_seconds(self._host(timing.call), device)
            for timing, device in tiny
            if timing.mode == "sync"
        ]
        waits = [wait for wait in waits if wait > 0]
        if not waits:
            raise CostError("anymps: no timing of a wait can be used: calibrate again on an idle Mac")
        expected, self._wait = self._wait, median(waits)
        found = {
            "host": self._slower[False] * self._stock.host[self._release.era],
            "kernel_host": self._slower[True] * self._stock.kernel_host,
            "wait": self._stock.wait * self._wait / expected,
        }
        return {**found, "view": 1e6 * median(views) * self._speed} if views else found

    def transfers(self, timings: list[Timed]) -> Transfer:
        """Latency by small copies, the rate by large ones; what was not timed stays."""
        known = self._stock.transfer
        copies = [
            (timing.seconds - (self._wait if timing.mode == "sync" else 0.0), moved_bytes(timing.call))
            for timing in timings
        ]
        # A blocking copy may take no longer than the wait that is taken off: its own part is then next to nothing.
        small = [max(_LEAST_COPY, seconds - size / known.rate) for seconds, size in copies if 0 < size < _LARGE_COPY]
        latency = median(small) if small else known.latency
        large = [size / (seconds - latency) for seconds, size in copies if size >= _LARGE_COPY and seconds > latency]
        return Transfer(latency, median(large) if large else known.rate)

    def kernels(self, timings: list[Timed]) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
        """Factors by class and by dtype, and how many timings each class rests on."""
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for timing in timings:
            if moved_bytes(timing.call) or timing.call.name in VIEWS or timing.mode != "pipe":
                continue
            works = works_of(timing.call, self._release.number)
            factor = self._factor(timing) if len(works) == 1 else None
            if factor is not None:
                found[works[0].kind, works[0].dtype].append(factor)
        matrix = self._stock.matrix
        plain: dict[str, list[float]] = defaultdict(list)  # products of half types tell of their dtype in place of that
        for (kind, dtype), factors in found.items():
            if kind not in matrix or dtype == "float32":
                plain[kind].extend(factors)
        classes = {kind: median(factors) for kind, factors in plain.items()}
        dtypes: dict[str, list[float]] = defaultdict(list)
        for (kind, dtype), factors in found.items():
            if kind in matrix and kind in classes and dtype != "float32":
                dtypes[dtype].extend(factor / classes[kind] for factor in factors)
        counts = {kind: len(factors) for kind, factors in plain.items()}
        for kinds in (matrix, self._stock.kernel):
            measured = [classes[kind] for kind in kinds if kind in classes]
            for kind in kinds:
                if measured:
                    classes.setdefault(kind, median(measured))
        return classes, {dtype: median(factors) for dtype, factors in dtypes.items()}, counts

    def _factor(self, timing: Timed) -> float | None:
        """The factor on a kernel's work that its timing says; None where the host hides it."""
        (work,) = works_of(timing.call, self._release.number)
        kernel = kernel_time(work, self._mac, self._release, self._stock)
        launch = LAUNCH_SHARE * self._stock.launch[self._release.era] * 1e-6
        host = self._host(timing.call)
        if timing.seconds < _LONG * host:
            return None
        device = (timing.seconds**4 - host**4) ** 0.25
        expected = kernel.seconds - launch
        return (device - launch) / expected if device > launch and expected > 0 else None

    def _device(self, timing: Timed) -> float:
        return operator_time(timing.call, self._mac, self._release, self._stock).device

    def _is_tiny(self, timing: Timed) -> bool:
        if moved_bytes(timing.call) or timing.call.name in VIEWS:
            return False
        return 0 < self._device(timing) < _TINY * self._stock_host(timing.call)

    def _stock_host(self, call: OperatorCall) -> float:
        return dispatch_seconds(call, self._mac, self._release, self._stock)

    def _host(self, call: OperatorCall) -> float:
        """What a dispatch takes on this machine."""
        return self._slower[runs_own_kernel(call, self._release)] * self._stock_host(call)
