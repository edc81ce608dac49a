"""`python -m tests.unread 2.16` lists what of the rules nobody has looked up in a release of torch.

A table is unread if its `READING` ends before that release: its rows without an end are assumed of the release. A known
bug is named if the last release in which it was seen lies before and none is known that mends it: of the release
nothing is claimed.
"""

from __future__ import annotations

import pkgutil
import sys
import textwrap
from importlib import import_module

from anymps import rules
from anymps.rules import parse_torch_version
from anymps.rules._readings import Reading, Release
from anymps.rules.faults import all_hazards


def tables() -> dict[str, Reading]:
    """The reading of every table of the rules, by its name."""
    names = sorted(module.name for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."))
    readings = (vars(import_module(name)).get("READING") for name in names)
    return {reading.table: reading for reading in readings if reading is not None}


def unread(release: Release) -> str:
    """The list as text, empty if all was read."""
    lines = [
        f"{name}: read to torch {_words(reading.last)}, {reading.source}"
        for name, reading in tables().items()
        if reading.last < release
    ]
    unseen = (hazard for hazard in all_hazards() if hazard.until < release and hazard.fixed is None)
    faults = ", ".join(dict.fromkeys(f"{hazard.id} ({_words(hazard.until)})" for hazard in unseen))
    if faults:
        lines.append("known bugs: the last release in which each was seen")
        lines += textwrap.wrap(faults, 116, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def _words(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.unread 2.16")
    print(unread(parse_torch_version(sys.argv[1]).release) or "everything was read")
