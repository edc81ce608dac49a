"""`python -m tests.unread 2.16` lists what of the rules nobody has looked up in a release of torch.

A table is unread if its `READING` ends before that release. Named are its rows without an end, which are assumed of the
release: operators, the names of limits and waits, fields, or the functions that give texts. A known bug is named if
the last release in which it was seen lies before and none is known that mends it: of the release nothing is claimed.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from anymps import rules
from anymps.rules import (
    OPERATOR_LIMITS,
    REFUSED_DTYPES,
    WAITS,
    VersionRules,
    parse_torch_version,
    registrations,
)
from anymps.rules import _dtypes as dtypes
from anymps.rules import _families as families
from anymps.rules import _metal_dtypes as metal_dtypes
from anymps.rules import _metal_kernels as metal_kernels
from anymps.rules import _operators as operators
from anymps.rules._determinism import ALERTS, SILENT
from anymps.rules._device_checks import DEVICE_CHECKS
from anymps.rules._readings import Ranged, Reading, Release
from anymps.rules.faults import all_hazards
from anymps.rules.variables import WATERMARKS


def tables() -> dict[str, tuple[Reading, ModuleType]]:
    """Every table of the rules by name, with its reading and its module."""
    found = pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")
    modules = [import_module(name) for name in sorted(module.name for module in found)]
    return {module.READING.table: (module.READING, module) for module in modules if "READING" in vars(module)}


def unread(release: Release) -> str:
    """The list as text, empty if all was read."""
    parts = [
        _part(f"{name}: read to torch {_words(reading.last)}, {reading.source}", NAMES[name](module))
        for name, (reading, module) in tables().items()
        if reading.last < release
    ]
    unseen = (hazard for hazard in all_hazards() if hazard.until < release and hazard.fixed is None)
    faults = [f"{hazard.id} ({_words(hazard.until)})" for hazard in unseen]
    if faults:
        parts.append(_part("known bugs: the last release in which each was seen", faults))
    return "\n".join(parts)


def _functions(module: ModuleType) -> list[str]:
    """A table of texts: each public function is one."""
    found = inspect.getmembers(module, inspect.isfunction)
    return [name for name, made in found if made.__module__ == module.__name__ and not name.startswith("_")]


def _operators_of(rows: Iterable[Any]) -> Iterator[str]:
    return (operator for row in rows if _is_open(row) for operator in row.operators)


def _widened() -> Iterator[str]:
    names = " ".join(dtypes._WIDENED.values()).split()
    return (name for name in names if name not in dtypes._WIDENED_IN or _is_open(dtypes._WIDENED_IN[name]))


def _open_names(table: dict[str, Any]) -> Iterator[str]:
    return (name for name, row in table.items() if _is_open(row))


def _is_open(row: Ranged) -> bool:
    return row.until is None


NAMES: Final[dict[str, Callable[[ModuleType], Iterable[str]]]] = {
    "casts": _functions,
    "determinism": lambda _: [*_operators_of(ALERTS), *sorted(SILENT)],
    "device_checks": lambda _: _operators_of(DEVICE_CHECKS),
    "dtypes": lambda _: [*_operators_of(REFUSED_DTYPES), *_widened()],
    "families": lambda _: " ".join(families._FAMILIES.values()).split(),
    "limits": lambda _: [*_open_names(OPERATOR_LIMITS), "missing stub"],
    "metal_dtypes": lambda _: sorted(metal_dtypes.kernel_names(metal_dtypes.READING.last)),
    "metal_kernels": lambda _: sorted(metal_kernels._FIRST),
    "operators": lambda _: sorted({*operators._CPU_INDEX, *operators._SCALAR_CPU, *operators._NO_SCALAR_CPU}),
    "registered": lambda _: [f"{len(registrations())} overloads"],
    "texts": lambda module: [name for name, made in vars(module).items() if isinstance(made, module.Wording)],
    "versions": lambda _: [field.name for field in fields(VersionRules) if field.name != "version"],
    "waits": lambda _: _open_names(WAITS),
    "watermarks": lambda _: WATERMARKS,
}
"""What a table names as its rows."""


def _part(head: str, names: Iterable[str]) -> str:
    text = ", ".join(dict.fromkeys(names))
    return "\n".join([head, *textwrap.wrap(text, 116, initial_indent="    ", subsequent_indent="    ")])


def _words(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.unread 2.16")
    print(unread(parse_torch_version(sys.argv[1]).release) or "everything was read")
