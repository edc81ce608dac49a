"""Tells Objective-C++ from C++ in the sources of an extension: both have the suffix .mm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Strings hold Metal text, and comments anything. An include of a file in quotes is no string.
_LAYOUT = re.compile(
    r"""(?P<kept>^[ \t]*\#[ \t]*(?:include|import)\b[^\n]*)
    |R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
    |"(?:\\.|[^"\\\n])*"
    |'(?:\\.|[^'\\\n])'
    |//(?:\\\n|[^\n])*
    |/\*.*?\*/""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
# Frameworks of macOS, and the internals of PyTorch's backend, which only its builds for macOS export.
_HEADERS = r"Foundation|CoreFoundation|AppKit|Metal\w*|Accelerate|CoreML|objc|ATen/(?:native/)?mps"
_FOREIGN = re.compile(
    rf"""\#\s*import\b
    |\#\s*include\s*[<"](?:{_HEADERS})/
    |@\s*[\w"\[({{]
    |\[\s*(?!using\b|sizeof\b|not\b)\w+(?:\.\w+)*\s+\w+\s*[:\]]
    |\bid\s*<\s*MTL""",
    re.VERBOSE,
)
_OWN_HEADER = re.compile(r'\s*#\s*include\s*"([^"]+)"')
_CONDITION = re.compile(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b(.*)")
_MACS = re.compile(r"\b__(?:OBJC|APPLE)__\b")


class Place(NamedTuple):
    """A line of a source that only a Mac compiles."""

    path: Path
    line: int
    text: str


def objective_c(path: Path, seen: set[Path] | None = None) -> Place | None:
    """The first such line of a source, or of the headers that it includes from its own folder; None for plain C++.

    Lines that the source keeps for a Mac (`#ifdef __OBJC__`) do not count, nor does a file that cannot be read: the
    compiler says so.
    """
    seen = set() if seen is None else seen
    if path in seen:
        return None
    seen.add(path)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = text.splitlines()
    for number, line in _compiled(_LAYOUT.sub(_blank, text).splitlines()):
        if _FOREIGN.search(line):
            return Place(path, number, lines[number - 1].strip())
        header = _OWN_HEADER.match(line)
        found = objective_c(Path(os.path.normpath(path.parent / header[1])), seen) if header else None
        if found is not None:
            return found
    return None


def _blank(match: re.Match[str]) -> str:
    """What stands for a string or a comment: as many lines, and the quotation marks, which `@"text"` has behind it."""
    if match["kept"] is not None:
        return match[0]
    return ("" if match[0].startswith("/") else '""') + "\n" * match[0].count("\n")


def _compiled(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without those that only a Mac's compiler reads."""
    left: list[tuple[bool, bool]] = []  # for each open condition: whether its lines are left out, and those of its else
    for number, line in enumerate(lines, 1):
        condition = _CONDITION.match(line)
        if condition is None:
            if not any(out for out, _ in left):
                yield number, line
            continue
        kind, rest = condition[1], condition[2]
        macs = bool(_MACS.search(rest))
        negated = kind == "ifndef" or "!" in rest
        if kind in ("if", "ifdef", "ifndef"):
            left.append((macs and not negated, macs and negated))
        elif left and kind == "elif":
            left[-1] = (macs and not negated, left[-1][1])
        elif left and kind == "else":
            left[-1] = (left[-1][1], False)
        elif left:
            left.pop()
