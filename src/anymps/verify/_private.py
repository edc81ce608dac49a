"""What a file of answers must not contain: paths of files, and the machine's name."""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path
from typing import Any, Final

from anymps._paths import portable_text

LONGEST: Final = 4000
_NO_WORDS: Final = frozenset({"values", "digest", "inputs", "dtype"})
_TRACE: Final = re.compile(r"\n?(?:Exception raised from|CPU Backtrace|C\+\+ CapturedTraceback).*", re.DOTALL)
_TRIGGERED: Final = re.compile(r" ?\(Triggered internally at [^)]*\)")
_OF_A_USER: Final = re.compile(r"(?<![\w.])/(?:Users|home|root|private|var|tmp|Volumes|mnt|work)/[^\s'\"()\[\]<>:,;]*")


_ASSERTED: Final = re.compile(r'(?<=ASSERT FAILED at ")[^"]*/(?=[^/"]+":)')


def without_private(value: Any) -> Any:
    """A text, or lists and dictionaries of texts, without paths of a user, addresses, and the names of the machine.

    The words of torch stay as they are. Where in torch's own source an exception was raised is left out.
    """
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {key: one if key in _NO_WORDS else without_private(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_private(one) for one in value]
    return value


def _clean(text: str) -> str:
    text = portable_text(_ASSERTED.sub(".../", _TRIGGERED.sub("", _TRACE.sub("", text))))
    text = _OF_A_USER.sub(lambda found: ".../" + found[0].rstrip("/").rpartition("/")[2], text)
    for name in _names():
        text = text.replace(name, "...")
    return text[:LONGEST]


@functools.cache
def _names() -> tuple[str, ...]:
    """The home directory and the machine's name, the longest first; not what could be a word of a message."""
    node = platform.node()
    found = {str(Path(os.path.expanduser("~"))), node, node.partition(".")[0]}
    return tuple(sorted((name for name in found if len(name) > 5 and not name.isalpha()), key=len, reverse=True))
