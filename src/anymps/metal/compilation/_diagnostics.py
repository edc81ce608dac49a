"""Turns the C++ compiler's errors into those of Metal's compiler, with the user's lines and columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
