"""Which line of the Metal source an address of checked code belongs to, by addr2line, which comes with the compiler."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anymps.metal.compilation import SOURCE_NAME

_TOOLS = ("addr2line", "llvm-addr2line", *(f"llvm-addr2line-{version}" for version in range(24, 13, -1)))
_HEADER = re.compile(r"(?:^|/)(c10/metal/[^/]+)$")
_FRAME = re.compile(r"^(?P<file>.*):(?P<line>\d+)(?: \(discriminator \d+\))?$")


@dataclass(frozen=True)
class ShaderLine:
    """A line of the user's source; of another file in it (`c10/metal/…`) if that is all that is known.

    Line 0: it is not known.
    """

    line: int = 0
    header: str = ""


def find_places(library: Path, addresses: Iterable[int]) -> dict[int, tuple[ShaderLine, ...]]:
    """For each return address the lines that it stands in, the innermost first, those of inlined functions included."""
    wanted = tuple(sorted(set(addresses) - {0}))
    tool = next((tool for name in _TOOLS if (tool := shutil.which(name)) is not None), None)
    if not wanted or tool is None:
        return {}
    try:
        return _places_of(tool, library, wanted)
    except (OSError, subprocess.TimeoutExpired):
        return {}


@functools.lru_cache(maxsize=256)
def _places_of(tool: str, library: Path, addresses: tuple[int, ...]) -> dict[int, tuple[ShaderLine, ...]]:
    """Asks the tool once for each set of addresses: starting a process takes longer than most launches.

    A library's name is a digest of its source, so it stays the same library.
    """
    # One less: the call itself, and not what comes after it.
    given = "".join(f"{address - 1:#x}\n" for address in addresses)
    answer = subprocess.run(
        [tool, "-a", "-i", "-e", str(library)],
        input=given, capture_output=True, text=True, errors="replace", check=False, timeout=60,
    )  # fmt: skip
    found: dict[int, tuple[ShaderLine, ...]] = {}
    address = 0
    for line in answer.stdout.splitlines():
        if line.startswith("0x"):
            address = int(line, 16) + 1
            found[address] = ()
            continue
        match = _FRAME.match(line)
        place = _place(match["file"], int(match["line"])) if match is not None else None
        if place is not None:
            found[address] += (place,)
    return found


def user_place(frames: Sequence[int], places: Mapping[int, tuple[ShaderLine, ...]]) -> ShaderLine:
    """The innermost line of the user's source on the way to an address, else the one in a header of PyTorch's."""
    way = [place for address in frames for place in places.get(address, ())]
    own = next((place for place in way if not place.header), None)
    return own or next(iter(way), ShaderLine())


def _place(file: str, line: int) -> ShaderLine | None:
    if Path(file).name == SOURCE_NAME:
        return ShaderLine(line)
    header = _HEADER.search(file)
    return ShaderLine(line, header[1]) if header is not None else None
