"""What one run of a program did, and whether a run of the changed program did the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose, isnan
from pathlib import Path
from typing import Final

from anymps._text import listed

TOLERANCE = 1e-3
"""Relative, of all numbers that are compared: a fused kernel rounds otherwise, and steps carry that on."""
_NOTHING = 1e-6
_LONGEST = 160  # characters of an error beside a suggestion

Trail = tuple[tuple[str, int], ...]
"""Lines of the program's own files at which an exception was, the outermost first, each by its file."""


@dataclass(frozen=True)
class Ran:
    """One run: how it ended, and what it computed.

    `error` is empty for a run that ended with 0. `losses` are the values that backward was called on, `printed` the
    numbers on standard output, `files` what the script wrote by its names, None for what is no text. `trail` is where
    the error was, `reached` are the lines of changed files that the run came to. It took `seconds`. `modules` are the
    files of the program's own modules that were imported. `used` says whether anything was on mps, `early` after how
    many steps the run was ended (0: it ended by itself), `cut` whether it was ended for its time.
    """

    error: str = ""
    losses: tuple[float, ...] = ()
    printed: tuple[float, ...] = ()
    files: Mapping[str, str | None] = field(default_factory=dict)
    trail: Trail = ()
    reached: frozenset[tuple[str, int]] = frozenset()
    seconds: float = 0.0
    modules: tuple[str, ...] = ()
    used: bool = False
    early: int = 0
    cut: bool = False

    @property
    def place(self) -> str:
        """The innermost line of the program's own at which it stopped: ` at train.py:9`; empty where none is known."""
        return f" at {Path(self.trail[-1][0]).name}:{self.trail[-1][1]}" if self.trail else ""

    @property
    def stopped(self) -> str:
        """Where and why it stopped, in one line of some length."""
        error = self.error if len(self.error) <= _LONGEST else f"{self.error[: _LONGEST - 4]} ..."
        return f"{self.place.strip()}: {error}".removeprefix(": ")

    def stops_like(self, other: Ran) -> bool:
        """Whether two runs ended with the same words, but for numbers of one run, at the same line if both tell one.

        Both lines are those of one text.
        """
        alike = comparable(self.error) == comparable(other.error)
        return alike and (not self.trail or not other.trail or self.trail == other.trail)


def stops_short(before: Ran, after: Ran) -> bool:
    """Whether an error ends a run before it came as far as the other."""
    if not after.error or before.stops_like(after):
        return False
    return not before.error or len(after.losses) < len(before.losses) or _is_earlier(before.trail, after.trail)


def difference(before: Ran, after: Ran, answered: Ran | None = None) -> str:
    """What two runs computed differently, as far as both came; empty where they agree.

    Printed numbers and files count where both came to the same end: what is printed before a crash is no result.
    `answered` is the run in which mps answered for CUDA: where the first chose the CPU, what it prints of the GPU comes
    beside the rest.
    """
    if not (before.cut or after.cut) and before.early == after.early and before.stops_like(after):
        more = answered is not None and len(answered.printed) == len(after.printed) > len(before.printed)
        return (
            _numbers("losses", before.losses, after.losses)
            or ("" if more and _has_all(after.printed, before.printed) else
                _numbers("printed numbers", before.printed, after.printed))
            or _files(before.files, after.files)
        )  # fmt: skip
    shorter = min(len(before.losses), len(after.losses))
    return _numbers("losses", before.losses[:shorter], after.losses[:shorter])


def agreement(before: Ran, after: Ran) -> str:
    """What two runs that agree have in common: `5 losses and 2 printed numbers agree`; empty if nothing."""
    found = [(min(len(before.losses), len(after.losses)), "loss", "losses")]
    if not (before.cut or after.cut) and before.early == after.early and before.stops_like(after):
        found += [
            (len(before.printed), "printed number", "printed numbers"),
            (len(before.files), "file", "files"),
        ]
    words = [f"{count:,} {one if count == 1 else more}" for count, one, more in found if count]
    agree = "agrees" if sum(count for count, _, _ in found) == 1 else "agree"
    return f"{listed(words)} {agree}" if words else ""


def _is_earlier(before: Trail, after: Trail) -> bool:
    """Whether the first line at which two runs part, of one file, comes earlier in the second."""
    parted = next((pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]), None)
    return parted is not None and parted[0][0] == parted[1][0] and parted[1][1] < parted[0][1]


def _numbers(what: str, before: Sequence[float], after: Sequence[float]) -> str:
    if len(before) != len(after):
        return f"{len(after):,} {what} instead of {len(before):,}"
    for one, other in zip(before, after, strict=True):
        if not agree(one, other):
            return f"{what} differ: {other:.6g} instead of {one:.6g}"
    return ""


def _has_all(numbers: Sequence[float], some: Sequence[float]) -> bool:
    """Whether some numbers are among others, in their order."""
    rest = iter(numbers)
    return all(any(agree(one, other) for other in rest) for one in some)


def _files(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> str:
    for name in sorted({*before, *after}):
        if name not in after:
            return f"the file {name} is not written"
        if name not in before:
            return f"the file {name} is written, too"
        one, other = before[name], after[name]
        if one != other and not _same_text(one, other):
            return f"the file {name} differs{_lines_apart(one or '', other or '')}"
    return ""


def _same_text(one: str | None, other: str | None) -> bool:
    """Whether texts are the same but for rounding, times, and the device that they name."""
    if one is None or other is None:
        return False
    one, other = without_devices(one), without_devices(other)
    if comparable(one) != comparable(other):
        return False
    here, there = numbers(one), numbers(other)
    return len(here) == len(there) and all(map(agree, here, there))


def _lines_apart(one: str, other: str) -> str:
    """The first line that differs, as both have it."""
    pairs = zip(one.splitlines(), other.splitlines(), strict=False)
    parted = next((pair for pair in pairs if not _same_text(*pair)), None)
    return "" if parted is None else f": {_short(parted[1])} instead of {_short(parted[0])}"


def _short(line: str) -> str:
    return repr(line if len(line) <= 60 else f"{line[:57]}...")


def agree(one: float, other: float) -> bool:
    """Whether two numbers are the same up to rounding."""
    return isclose(one, other, rel_tol=TOLERANCE, abs_tol=_NOTHING) or (isnan(one) and isnan(other))


_TEMPORARY: Final = re.compile(r"(?:/private)?/(?:tmp|var/tmp|var/folders|dev/shm)/[^\s'\"`:;,()\[\]<>]+")
_HEXADECIMAL: Final = re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b")
_IDENTIFIER: Final = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_DIGITS: Final = re.compile(r"(?<![A-Za-z_\d])\d(?:[\d.,:_]*\d)?(?:[eE][-+]?\d+)?")
_LIST: Final = re.compile(r"#(?:,? #)+")

_NUMBER: Final = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")
_CLOCK: Final = re.compile(  # 2026-11-28T14:04:11.8 and 20261128-140411, also within a name; 28-11-26; 14:04
    r"(?<!\d)\d{4}-\d\d-\d\d[T_ -]\d\d[:_-]\d\d(?:[:_-]\d\d(?:[.,]\d+)?)?(?!\d)"
    r"|(?<!\d)(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d[T_-]?\d{4}(?:\d\d)?(?!\d)"
    r"|\b\d{1,4}-\d\d-\d\d\b|\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?\b"
)
_DEVICE_INDEX: Final = re.compile(r"\b(?:mps|cuda|cpu):\d+\b")
_OF_TENSOR: Final = re.compile(r",\s*device='(?:mps|cuda)(?::\d+)?'")
_DEVICE: Final = re.compile(r"\b(?:mps|cuda|cpu)(?::\d+)?\b")
_UNIT: Final = r"(?:[mnuµ]?s|secs?|seconds?|mins?|minutes?|hrs?|hours?|milliseconds?)"
_WITH_UNIT: Final = re.compile(
    rf"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*(?:{_UNIT}\b(?!\.?\w)|[\w./]*/\s*{_UNIT}\b)"
)
_SIZE: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)\s*(?:[kKMGT]i?[bB]|[bB]ytes?)\b(?!/)")
_MEMORY_WORDS: Final = r"(?:\w*memory\w*|mem|vram|\w*allocated|\w*reserved)"
_TIME_WORDS: Final = (
    r"(?:elapsed|took|duration|eta|seconds|speed|throughput|fps|\w*time\w*|\w+/s(?:ec)?|m?s/\w+|\w+_per_sec\w*)"
)
_NAMED: Final = re.compile(
    rf"\b(?:{_TIME_WORDS}|{_MEMORY_WORDS})\b\W{{0,8}}?[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:\s*\(\s*[\d.]+\s*\))?",
    re.IGNORECASE,
)


def comparable(message: str) -> str:
    """An error's text by which it is known again: without numbers of processes and ports, addresses, times, and paths
    of temporary folders.

    All numbers become `#`, sizes too: which of two alike errors is meant is told by the line that raised it. Digits in
    names, as in float64, stay.
    """
    text = _CLOCK.sub("#", _TEMPORARY.sub("<temporary>", message))
    text = _IDENTIFIER.sub("#", text)
    text = _HEXADECIMAL.sub("#", text)
    return _LIST.sub("#", _DIGITS.sub("#", text))


def without_devices(text: str) -> str:
    """A text without the names of devices, and what a tensor's text says of its own."""
    return _DEVICE.sub("@", _OF_TENSOR.sub("", text))


def numbers(printed: str) -> tuple[float, ...]:
    """The numbers in what a program printed that a change of where it runs must keep.

    Without the index of a device, and what the text calls a time, a date or a size of memory: a loss that stays on the
    device takes some of it.
    """
    text = _CLOCK.sub(" ", _DEVICE_INDEX.sub(" ", printed))
    text = _NAMED.sub(" ", _SIZE.sub(" ", _WITH_UNIT.sub(" ", text)))
    return tuple(float(number) for number in _NUMBER.findall(text))
