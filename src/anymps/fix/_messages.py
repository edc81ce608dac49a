"""What stays the same in a text if a run is repeated: without addresses, times and process IDs."""

from __future__ import annotations

import re
from typing import Final

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
