"""Numbers, sizes, times and paths as reports write them. Plain ASCII, apart from what the script itself contains."""

from __future__ import annotations

import itertools
from pathlib import PurePath

from anymps._paths import is_library, portable_path, project_path
from anymps._text import clean as clean
from anymps._text import duration as duration
from anymps._text import duration_range as duration_range
from anymps._text import duration_short as duration_short
from anymps._text import percent as share
from anymps._text import plural as plural
from anymps._text import size as size
from anymps.findings import numbered
from anymps.record import Site

_FAR_UP = 3  # folders above the run's: `project/examples/adder`
_WHOLE_PARTS = 3  # of a path in an installed package: `timm/layers/drop.py`


def shorten(line: str, width: int) -> str:
    """The line, cut to `width` characters with `...` at its end."""
    return line if len(line) <= width else f"{line[: width - 3]}..."


def count(number: float) -> str:
    """`12,345`, `2.5`; the empty text for nothing."""
    if number == 0:
        return ""
    text = f"{number:,.1f}".removesuffix(".0")
    return text if text != "0" else "<0.1"


def percent(part: float, whole: float) -> str:
    """`12 %`; the empty text for nothing."""
    if part <= 0 or whole <= 0:
        return ""
    return share(part / whole)


def path(file: str, directory: str = "") -> str:
    """A file as its reader knows it: from the directory of the run, or from `site-packages`."""
    return clean(project_path(file, (directory,)))


def module(file: str, directory: str = "") -> str:
    """A file in few words: from the directory of the run if it lies there or close by, else its package and module.

    `../../mingpt/model.py` of the same project, which editors and terminals open, `logging/__init__.py` of Python's
    own, `transformers/.../modeling_llama.py` in `site-packages`.
    """
    whole = path(file, directory)
    if directory and PurePath(file).is_relative_to(directory):
        return whole
    parts = PurePath(whole).parts
    if PurePath(whole).is_absolute():
        return clean(_from_close_by(PurePath(file), PurePath(directory)) or "/".join(parts[-2:]))
    return f"{parts[0]}/.../{parts[-1]}" if len(parts) > _WHOLE_PARTS else whole


def _from_close_by(file: PurePath, directory: PurePath) -> str:
    """`../model.py` where both have a folder in common that is not the root; empty for any other file."""
    shared = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(file.parts, directory.parts, strict=False))
    )
    up = len(directory.parts) - shared
    if shared < 2 or up > _FAR_UP or is_library(str(file)) or portable_path(str(file)) != str(file):
        return ""
    return "/".join((*[".."] * up, *file.parts[shared:]))


def without_folders(place: str, width: int) -> str:
    """A place with `...` for its first folders, as far as `width` asks for it; the name of the file stays whole."""
    parts = place.split("/")
    shorter = [place, *("/".join(["...", *parts[first:]]) for first in range(1, len(parts)))]
    return next((candidate for candidate in shorter if len(candidate) <= width), shorter[-1])


def place(site: Site, directory: str = "") -> str:
    """`train.py:12`, or `an unknown line`."""
    return numbered(module(site.file, directory), site.line) if site.known else "an unknown line"
