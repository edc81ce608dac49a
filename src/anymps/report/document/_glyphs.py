"""The characters that drawings in text are made of; ASCII where a stream can encode no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Glyphs:
    """The characters of the drawings; `bands` in the order of `Category`."""

    bands: str
    bar: str
    more: str
    working_set: str
    low: str
    limit: str
    peak: str
    floor: str
    step: str
    dot: str


BLOCKS: Final = Glyphs("█▓▒╳░▞·?", "█", "▶", "│", "┊", "┃", "▼", "─", "┴", "●")
ASCII: Final = Glyphs("PGOBAHT?", "#", ">", "|", ":", "!", "v", "-", "+", "o")


def glyphs_for(encoding: str) -> Glyphs:
    """Blocks where the encoding has them, else ASCII."""
    try:
        "".join(vars(BLOCKS).values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS
