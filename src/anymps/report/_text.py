"""Numbers, sizes, times and paths as reports write them. Plain ASCII, apart from what the script itself contains."""

from __future__ import annotations

from pathlib import PurePath

from anymps._units import duration as duration
from anymps._units import duration_range as duration_range
from anymps._units import duration_short as duration_short
from anymps.findings import numbered, project_path
from anymps.record import Site

_WHOLE_PARTS = 3  # of a path in an installed package: `timm/layers/drop.py`


def clean(text: str) -> str:
    """Text from the script or its environment, on one line and without control characters."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text.expandtabs(4)
    )


def shorten(line: str, width: int) -> str:
    """The line, cut to `width` characters with `...` at its end."""
    return line if len(line) <= width else f"{line[: width - 3]}..."


def count(number: float) -> str:
    """`12,345`, `2.5`; the empty text for nothing."""
    if number == 0:
        return ""
    text = f"{number:,.1f}".removesuffix(".0")
    return text if text != "0" else "<0.1"


def plural(number: int, word: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def size(number: float) -> str:
    """A number of bytes: `312 B`, `4 KiB`, `1.5 MiB`; the empty text for nothing."""
    if number == 0:
        return ""
    if number < 1024:
        return f"{max(number, 1):.0f} B"
    unit = "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if round(number / 1024, 1) < 1024:
            break
        number /= 1024
        unit = larger
    return f"{number / 1024:,.1f}".removesuffix(".0") + f" {unit}"


def percent(part: float, whole: float) -> str:
    """`12 %`; the empty text for nothing."""
    if part <= 0 or whole <= 0:
        return ""
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 0.5 else "<1 %"


def path(file: str, directory: str = "") -> str:
    """A file as its reader knows it: from the directory of the run, or from `site-packages`."""
    return clean(project_path(file, (directory,)))


def module(file: str, directory: str = "") -> str:
    """A file in few words: as `path` in the directory of the run, elsewhere no more than its package and module.

    `transformers/.../modeling_llama.py` in `site-packages`, `logging/__init__.py` of Python's own, `nanogpt/model.py`.
    """
    whole = path(file, directory)
    if directory and PurePath(file).is_relative_to(directory):
        return whole
    parts = PurePath(whole).parts
    if PurePath(whole).is_absolute():
        return clean("/".join(parts[-2:]))
    return f"{parts[0]}/.../{parts[-1]}" if len(parts) > _WHOLE_PARTS else whole


def without_folders(place: str, width: int) -> str:
    """A place with `...` for its first folders, as far as `width` asks for it; the name of the file stays whole."""
    parts = place.split("/")
    shorter = [place, *("/".join(["...", *parts[first:]]) for first in range(1, len(parts)))]
    return next((it for it in shorter if len(it) <= width), shorter[-1])


def place(site: Site, directory: str = "") -> str:
    """`train.py:12`, or `an unknown line`."""
    return numbered(module(site.file, directory), site.line) if site.known else "an unknown line"
