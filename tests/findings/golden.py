"""Tables of what findings say: a line of code, what else a recording has as JSON, the finding, the fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anymps.findings import Finding

DATA = Path(__file__).parents[1] / "data"
Make = Callable[..., Finding]
"""Makes the finding about a line, with the rest as keywords."""


def cases(name: str) -> list[tuple[str, str, str]]:
    """The line, the rest of the recording, and what the finding says: what belongs to a line stands two blanks in."""
    blocks: list[list[str]] = []
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            blocks[-1].append(line[2:])
        elif not line.startswith("#"):
            blocks.append([line])
    return [(source, "".join(given), f"{what}\n{fix}") for source, *given, what, fix in blocks]


def told(make: Make, source: str, given: str) -> str:
    """What the finding says now."""
    more: dict[str, Any] = json.loads(given or "{}")
    finding = make(source, **more)
    return f"{finding.id} {finding.what}\n{finding.fix}"


def rewrite(name: str, make: Make) -> None:
    """Write what findings say anew, for a person to read the difference."""
    text = (DATA / name).read_text(encoding="utf-8")
    for source, given, expected in cases(name):
        before = "\n  ".join(filter(None, (source, given)))
        old, new = ("\n  ".join(["", *each.splitlines(), ""]) for each in (expected, told(make, source, given)))
        text = text.replace(f"\n{before}{old}"[:-2], f"\n{before}{new}"[:-2])
    (DATA / name).write_text(text, encoding="utf-8")
