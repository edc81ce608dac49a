"""Turns the C++ compiler's errors into those of Metal's compiler, and its warnings into unset variables, by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from anymps.metal.compilation._preprocess import SOURCE_NAME, Prepared
from anymps.metal.translation import Rewritten

_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_SHOWN = 5
_NAMES = (  # ours, and what the user wrote
    (r"anymps_vectors::vec<([\w ]+?), (?:\(unsigned int\))?(\d)>", r"\1\2"),
    (r"anymps_vectors::packed<([\w ]+?), (?:\(unsigned int\))?(\d)>", r"packed_\1\2"),
    (r"_Float16", "half"),
    (r"unsigned int", "uint"),
    (r"ANYMPS_KERNEL", "kernel"),
)
_FUNCTION = re.compile(r"[Ii]n (?:member )?function '(?P<head>[^']*)'")
_INLINED = re.compile(r"inlined from '(?P<head>[^']*)' at (?P<file>[^:]+):(?P<line>\d+)")
_HEAD = re.compile(r"(?:^|[\s:*&])(?P<name>\w+)(?:<.*>)?\(")
_WARNING = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: warning: (?P<text>.*) \[-W[\w-]*uninitialized\]$")
_NAME = re.compile(r"'(?P<name>(?!anymps)[A-Za-z_]\w*)['.]")


def source_line(prepared: Prepared, offset: int) -> int:
    """The user's line of an offset in the prepared source."""
    line = prepared.text.count("\n", 0, offset) + 1
    return next((said for said, physical in prepared.physical.items() if physical == line), line)


def syntax_error(
    output: str, source: str, prepared: Prepared | None = None, rewritten: Rewritten | None = None
) -> SyntaxError:
    """The error that Metal's compiler would raise, from what the C++ compiler said.

    Without an error in the user's own text it is the first one of all: a header's, or one of the call of a kernel.
    """
    found = []
    for match in _ERROR.finditer(output):
        if match["file"] != SOURCE_NAME:
            continue
        number, column = int(match["line"]), int(match["column"])
        if prepared is not None and rewritten is not None:
            column = rewritten.source_column(prepared.physical.get(number, number), column)
        found.append((number, column, _plain(match["text"])))
    if found:
        return metal_error(source, found)
    first = next((match.group() for match in _ERROR.finditer(output)), output.strip()[:2000])
    return SyntaxError(f"{_plain(first)}\n")


def metal_error(source: str, found: Sequence[tuple[int, int, str]]) -> SyntaxError:
    """The first errors of a source, each with its line and column, as Metal's compiler writes them."""
    lines = source.splitlines()
    shown = []
    for number, column, text in found[:_SHOWN]:
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        mark = re.sub(r"[^\t]", " ", line[: column - 1]) + "^"
        shown.append(f"{SOURCE_NAME}:{number}:{column}: error: {text}\n{line}\n{mark}\n")
    return SyntaxError("".join(shown))


def _plain(message: str) -> str:
    for ours, theirs in _NAMES:
        message = re.sub(ours, theirs, message)
    return message.replace("‘", "'").replace("’", "'")


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
