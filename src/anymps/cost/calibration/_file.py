"""Calibrations as files: one for a chip, its GPU cores and a release of torch, in the user's cache directory.

A prediction takes the file of its Mac and release if there is one. A file that makes no sense changes no number: the
prediction says in a sentence that it is not used, and why.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from anymps._atomic import replace_text
from anymps._cache import CACHE_VARIABLE, cache_home
from anymps._errors import CostError, UsageError
from anymps.cost._coefficients import Coefficients, Transfer, shipped
from anymps.cost.calibration._calibration import Calibration, calibrated, coefficients_name, release_of
from anymps.mac import Mac

FORMAT: Final = "anymps-calibration"
VERSION: Final = 1
FOLDER: Final = "calibration"

_MONTHS: Final = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_FARTHEST: Final = 100.0  # of a factor, up or down


def calibration_path(mac: Mac, torch: str) -> Path:
    """Where the calibration of a Mac's chip is kept for a release of torch; the file may not exist.

    Raises UsageError if there is no cache directory.
    """
    chip = mac.chip.removeprefix("Apple ").replace(" ", "-").lower()
    return cache_home() / FOLDER / f"{chip}-{mac.gpu_cores}-torch-{release_of(torch)}.json"


def coefficients_for(mac: Mac, torch: str) -> Coefficients:
    """The coefficients of a calibration of that chip for that release, else the shipped ones."""
    try:
        path = calibration_path(mac, torch)
        state = path.stat()
    except (OSError, UsageError):
        return shipped()
    chip = mac.chip.removeprefix("Apple ")
    return _read(path, chip, mac.gpu_cores, release_of(torch), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, chip: str, cores: int, release: str, *_: int) -> Coefficients:
    try:
        calibration = read_calibration(path, chip, cores, release)
    except CostError as error:
        why_not = error.reason
        return replace(shipped(), calibration=f"{why_not[0].upper()}{why_not[1:]}.")
    return calibrated(shipped(), calibration, f"Calibrated on this machine, {date_in_words(calibration.date)}.")


def read_calibration(path: Path, chip: str, cores: int, release: str) -> Calibration:
    """Read a calibration of that chip and release.

    Raises CostError, in one line, for a file that cannot be read, that is cut short, of something else, or with numbers
    that make no sense.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = _checked(data, chip, cores, release)
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _NonsenseError) else "it is cut short, or not JSON"
    else:
        return found
    raise CostError(f"anymps: the calibration {path.name} is not used: {reason}")


def keep_calibration(calibration: Calibration, path: Path) -> None:
    """Write the file completely or not at all. Raises UsageError, in one line, if it cannot be written."""
    content = {"format": FORMAT, "version": VERSION, **asdict(calibration), "transfer": calibration.transfer._asdict()}
    text = json.dumps(content, indent=1, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, text)
    except OSError as error:
        raise UsageError(
            f"the calibration cannot be kept in {path.parent} ({error.strerror or error}): make room there, "
            f"or name another place in {CACHE_VARIABLE}"
        ) from None


def date_in_words(day: str) -> str:
    """`14 Nov 2026` of `2026-11-14`. Raises ValueError for another text."""
    parsed = date.fromisoformat(day)
    return f"{parsed.day} {_MONTHS[parsed.month - 1]} {parsed.year}"


class _NonsenseError(ValueError):
    """What a calibration says that cannot be; the text completes `it is not used: `."""


def _checked(data: Any, chip: str, cores: int, release: str) -> Calibration:
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise _NonsenseError(f"it is not of the format {FORMAT} {VERSION}")
    if (data.get("chip"), data.get("gpu_cores")) != (chip, cores):
        raise _NonsenseError(f"it is of an {data.get('chip')} with {data.get('gpu_cores')} GPU cores")
    if data.get("torch") != release:
        raise _NonsenseError(f"it was made with torch {data.get('torch')}")
    if data.get("coefficients") != coefficients_name():
        raise _NonsenseError("another version of anymps made it, calibrate again")
    try:
        date_in_words(data["date"])
    except (KeyError, TypeError, ValueError):
        raise _NonsenseError("it has no date") from None
    known = shipped()
    factors = (1 / _FARTHEST, _FARTHEST)
    transfer = _numbers(data, "transfer", ("latency", "rate"), (1e-9, 1e15))
    if len(transfer) < len(Transfer._fields):
        raise _NonsenseError("its transfer is incomplete")
    return Calibration(
        chip=chip,
        gpu_cores=cores,
        torch=release,
        date=data["date"],
        microseconds=_numbers(data, "microseconds", ("host", "kernel_host", "view", "wait"), (1e-3, 1e6)),
        transfer=Transfer(**transfer),
        classes=_numbers(data, "classes", (*known.matrix, *known.kernel), factors),
        dtypes=_numbers(data, "dtypes", ("float16", "bfloat16"), factors),
        timings={},
        coefficients=data["coefficients"],
    )


def _numbers(data: dict[str, Any], name: str, names: tuple[str, ...], bounds: tuple[float, float]) -> dict[str, float]:
    """A table of numbers, each of a known name and within the bounds."""
    table = data.get(name)
    if not isinstance(table, dict):
        raise _NonsenseError(f"it has no {name}")
    for key, value in table.items():
        if key not in names:
            raise _NonsenseError(f"its {name} hold {key!r}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not bounds[0] <= value <= bounds[1]:
            raise _NonsenseError(f"its {name} say {value!r} for {key}")
    return {key: float(value) for key, value in table.items()}
