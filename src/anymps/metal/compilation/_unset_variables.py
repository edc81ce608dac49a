"""Variables of a checked shader that are read before they are written, from the compiler's warnings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from anymps.metal.compilation._preprocess import SOURCE_NAME

_FUNCTION = re.compile(r"[Ii]n (?:member )?function '(?P<head>[^']*)'")
_INLINED = re.compile(r"inlined from '(?P<head>[^']*)' at (?P<file>[^:]+):(?P<line>\d+)")
_HEAD = re.compile(r"(?:^|[\s:*&])(?P<name>\w+)(?:<.*>)?\(")
_WARNING = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: warning: (?P<text>.*) \[-W[\w-]*uninitialized\]$")
_NAME = re.compile(r"'(?P<name>(?!anymps)[A-Za-z_]\w*)['.]")


class UnsetVariable(NamedTuple):
    """A line of the source, a variable (empty if it has no name), whether every path to it leaves it unset."""

    line: int
    variable: str
    sure: bool


def find_unset(output: str, names: Mapping[str, Iterable[str]]) -> str:
    """A compiler's warnings by kernel, as JSON. `names` gives the kernels that are made of a function."""
    found: dict[str, list[UnsetVariable]] = {}
    head, line = "", 0  # of the outermost function, and the innermost line of the source
    for text in output.replace("\u2018", "'").replace("\u2019", "'").splitlines():
        if (match := _FUNCTION.search(text)) is not None:
            head, line = match["head"], 0
        elif (match := _INLINED.search(text)) is not None:
            head = match["head"]
            line = line or (int(match["line"]) if match["file"] == SOURCE_NAME else 0)
        elif (match := _WARNING.match(text)) is not None:
            place = int(match["line"]) if match["file"] == SOURCE_NAME else line
            function, variable = _HEAD.search(head), _NAME.search(match["text"])
            one = UnsetVariable(
                place, variable["name"] if variable is not None else "", " may be " not in match["text"]
            )
            for kernel in names.get(function["name"], ()) if function is not None and place else ():
                known = found.setdefault(kernel, [])
                if all(place != other.line for other in known):
                    known.append(one)
    return json.dumps(found)
