"""`anymps bench --calibrate`: times calls on this Mac, fits the coefficients of predictions to them and keeps these."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import date
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import click

from anymps._errors import UsageError
from anymps._text import percent
from anymps.cost import predict_operator, shipped
from anymps.cost.calibration import (
    Calibration,
    Timed,
    calibrated,
    calibration_path,
    date_in_words,
    expected_seconds,
    fit,
    keep_calibration,
    refusal,
)
from anymps.mac import Mac, parse_mac
from anymps.report import check_file
from anymps.verify.cases import RUNS, TIMED_CALLS, Measurement, measure, prepare, swapped_out

if TYPE_CHECKING:
    from anymps.train.timing import Stopwatch

COLUMNS: Final = (
    "source_url", "chip", "gpu_cores", "cores_stated", "torch", "torch_stated", "mode", "milliseconds", "calls", "notes"
)  # fmt: skip
"""Those of `benchmarks/times/operators.csv`."""


def calibrate(out: Path | None, virtual: str | None) -> int:
    """Time the cases on this Mac, keep what they say, print both, and write the timings to `out`.

    `virtual` names the Mac that the virtual device plays: a test's switch, as its times are no Mac's. Raises UsageError
    on another machine than a Mac and for a file that exists already, CostError where too little can be used.
    """
    if out is not None:
        if out.exists():
            raise UsageError(f"{out} exists already")
        check_file(out)
    mac = _this_mac(virtual)
    import torch

    path = calibration_path(mac, torch.__version__)
    seen = _measured(_stopwatch(), mac, torch.__version__)
    today = _today()
    used = [row.timed for row in seen if row.timed and not refusal(row.timed, mac, torch.__version__, shipped())]
    timings = [row.timed or Timed(row.case.call, row.case.mode, 0.0, 0.0) for row in seen]
    found = fit(timings, mac, torch.__version__, today, shipped())
    keep_calibration(found, path)
    if out is not None:
        _write_rows(out, used, mac, torch.__version__, today)
    print("\n".join(_lines(found, used, len(seen), mac, torch.__version__)))
    print(f"Kept in {path}: from now on, times on an {mac.name} with torch {found.torch} are predicted with it.")
    if out is not None:
        print(f"The timings are in {out}.")
    return 0


def _this_mac(virtual: str | None) -> Mac:
    """The Mac to calibrate, its device switched on. Raises UsageError if there is none."""
    import anymps
    from anymps.device import this_mac

    if virtual is not None:
        anymps.enable(virtual, start_method="system")
        return parse_mac(virtual)
    mac = this_mac()
    if mac is None:
        raise UsageError(
            "this machine is not a Mac that anymps knows, so nothing is calibrated: "
            "run anymps bench --calibrate on the Mac itself"
        )
    anymps.enable(require="real", start_method="system")
    return mac


def _stopwatch() -> Stopwatch:
    from anymps.train.timing import Stopwatch

    return Stopwatch.of("mps")


def _today() -> str:
    return date.today().isoformat()


def _measured(watch: Stopwatch, mac: Mac, torch: str) -> list[Measurement]:
    """Time all cases; one line on stderr for each that cannot be used."""
    seen = []
    cases = TIMED_CALLS
    for found in measure(cases, watch, prepare, swapped_out):
        seen.append(found)
        why = found.failure if found.timed is None else refusal(found.timed, mac, torch, shipped())
        if why:
            click.echo(f"anymps: {found.case.text} ({found.case.mode}) does not count: {why}", err=True)
        elif len(seen) % 10 == 0:
            click.echo(f"anymps: {len(seen)} of {len(cases)} timed", err=True)
    return seen


def _lines(found: Calibration, used: list[Timed], all_of_them: int, mac: Mac, torch: str) -> list[str]:
    """What was measured beside what was predicted: by class, before and after the calibration."""
    stock, after = shipped(), calibrated(shipped(), found)
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for timing in used:
        before, now = (
            timing.seconds / expected_seconds(timing.call, timing.mode, mac, torch, by) for by in (stock, after)
        )
        groups[_group(timing, mac, torch)].append((before, now))
    lines = [
        f"{mac.describe()}, torch {torch}, {date_in_words(found.date)}: {len(used)} of {all_of_them} timings count.",
        "",
        f"{'':20}{'timings':>8}{'measured / predicted':>22}{'off after calibration':>23}",
    ]
    for name, ratios in groups.items():
        off = median(abs(1 / now - 1) for _, now in ratios)
        lines.append(f"{name:20}{len(ratios):>8}{median(first for first, _ in ratios):>22.2f}{percent(off):>23}")
    return [line.rstrip() for line in [*lines, ""]]


def _group(timing: Timed, mac: Mac, torch: str) -> str:
    """The class under which a timing is reported."""
    kind = predict_operator(timing.call, mac, torch).kind
    if kind == "transfer":
        return "CPU to or from mps"
    if timing.mode == "sync":
        return "wait"
    return "dispatch" if "[1]" in timing.call.inputs[0] else kind.replace("_", " ")


def _write_rows(out: Path, used: list[Timed], mac: Mac, torch: str, today: str) -> None:
    """Write the timings of kernels as `benchmarks/times/operators.csv` has them."""
    chip = mac.chip.removeprefix("Apple ")
    try:
        with out.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for timing in used:
                if (
                    any("on cpu" in text for text in (*timing.call.inputs, *timing.call.outputs))
                    or timing.call.name in _NO_KERNELS
                ):
                    continue
                notes = (
                    f"macOS {mac.macos[0]}.{mac.macos[1]}, {today}, median of {RUNS} runs, spread {timing.spread:.0%}"
                )
                writer.writerow(
                    ("local", chip, mac.gpu_cores, "yes", torch.partition("+")[0], "yes", timing.mode,
                     f"{1e3 * timing.seconds:.6g}", timing.call.text, notes)
                )  # fmt: skip
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}") from None


_NO_KERNELS: Final = ("view", "transpose")
