"""The drawing of the packages by floor in docs/images/packages.svg, made from the table of docs/architecture.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "anymps"
DRAWING = ROOT / "docs" / "images" / "packages.svg"

_LEFT, _RIGHT, _TOP, _FLOOR, _HEIGHT = 62.0, 854.0, 16, 74, 58
_LARGE = 5  # packages of a floor that still have room for large names
_MOST = 12  # packages that stand in one line
_LONG = 30  # letters of wings that still stand in one line
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" role="img" aria-labelledby="title">
<title id="title">The packages of anymps by floor</title>
<style>
rect{{stroke:#57606a;stroke-width:1.2}} .b{{fill:#f6f8fa}} .r{{fill:#fff8c5}}
text{{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;text-anchor:middle;fill:#1f2328}}
.t{{font-size:15px;font-weight:600}} .m{{font-size:11.5px;font-weight:600}} .s{{font-size:12px;fill:#424a53}}
.n{{font-size:12px;fill:#57606a;text-anchor:start}} .a{{stroke:#57606a;stroke-width:1.6;fill:none}}
</style>
<defs><marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0 L8 4 L0 8 z" fill="#57606a"/></marker></defs>
<rect x="0" y="0" width="860" height="{height}" style="fill:#ffffff;stroke:none"/>
"""
_NOTE = "A package imports only from floors below it. Below each name: its subpackages. Yellow: needs torch."


def floors() -> dict[int, list[tuple[str, bool]]]:
    """The packages of each floor as the table has them, and whether they import torch."""
    found: dict[int, list[tuple[str, bool]]] = {}
    for floor, packages, torch in re.findall(r"^\| (\d) \| (.+?) \| .+? \| (.+?) \|$", TABLE.read_text("utf-8"), re.M):
        rows = found.setdefault(int(floor), [])
        rows += [(name, torch.startswith("yes")) for name in re.findall(r"`(\w+)`", packages)]
    return found


def wings(package: str) -> list[str]:
    """The folders of a package that hold code."""
    folders = sorted((SOURCE / package).glob("*/"))
    return [folder.name for folder in folders if {*folder.glob("*.py"), *folder.glob("*/*.cpp")}]


def drawing() -> str:
    """The whole drawing."""
    rows = floors()
    height = _TOP + _FLOOR * len(rows) + 24
    pieces = [_HEAD.format(height=height)]
    middle = (_LEFT + _RIGHT) / 2
    arrows = []
    for place, floor in enumerate(sorted(rows, reverse=True)):
        top = _TOP + place * _FLOOR
        pieces.append(f'<text class="n" x="10" y="{top + 34}">floor {floor}</text>\n')
        several = len(rows[floor]) > _MOST
        half = (len(rows[floor]) + 1) // 2 if several else len(rows[floor])
        pieces += _row(rows[floor][:half], top, _HEIGHT / 2 - 1 if several else _HEIGHT)
        if several:
            pieces += _row(rows[floor][half:], top + _HEIGHT // 2 + 1, _HEIGHT / 2 - 1)
        if place:
            arrows.append(
                f'<path class="a" d="M{middle} {top - _FLOOR + _HEIGHT} L{middle} {top - 1}" marker-end="url(#h)"/>\n'
            )
    note = f'<text class="n" x="{_LEFT:.0f}" y="{height - 12}">{_NOTE}</text>\n'
    return "".join([*pieces, *arrows, note, "</svg>\n"])


def _row(packages: list[tuple[str, bool]], top: int, height: float) -> list[str]:
    """The boxes of a floor; each has room for the longest of its lines."""
    large = len(packages) <= _LARGE
    inside = {name: _lines(wings(name)) for name, _ in packages}
    letter = 0.66 * (15 if large else 11.5)
    needed = [max(len(name) * letter, *(len(line) * 6 for line in inside[name]), 0) for name, _ in packages]
    gap = 6.0 if large else 2.0
    spare = (_RIGHT - _LEFT - gap * (len(packages) - 1) - sum(needed)) / len(packages)
    pieces, left = [], _LEFT
    for (name, torch), need in zip(packages, needed, strict=True):
        width = need + spare
        center = f"{left + width / 2:.1f}"
        box = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}" rx="6"'
        pieces.append(f'<rect class="{"r" if torch else "b"}" {box}/>\n')
        line = top + (height / 2 + 5, 26, 19)[len(inside[name])]
        pieces.append(f'<text class="{"t" if large else "m"}" x="{center}" y="{line}">{name}</text>\n')
        for number, words in enumerate(inside[name], start=1):
            pieces.append(f'<text class="s" x="{center}" y="{line + 16 * number}">{words}</text>\n')
        left += width + gap
    return pieces


def _lines(folders: list[str]) -> list[str]:
    """The wings of a package in one line, or in the two that are shortest."""
    whole = " · ".join(f"{folder}/" for folder in folders)
    if len(whole) <= _LONG:
        return [whole] if whole else []
    pairs = [
        [" · ".join(f"{package}/" for package in part) for part in (folders[:n], folders[n:])]
        for n in range(1, len(folders))
    ]
    return min(pairs, key=lambda pair: max(map(len, pair)))


def write() -> None:
    """Write the drawing."""
    DRAWING.write_text(drawing(), encoding="utf-8")
