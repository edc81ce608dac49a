"""Which face takes which rows."""

from __future__ import annotations

__all__ = ["FACES", "rows_of"]

from collections.abc import Mapping
from typing import Any, Final

from anymps._settings._commands import (
    ConvertSettings,
    CoverageSettings,
    DiffSettings,
    DoctorSettings,
    JoinManifestsSettings,
    JoinSettings,
    KernelsAddSettings,
    KernelsListSettings,
    KernelsRemoveSettings,
    KernelsShowSettings,
)
from anymps._settings._row import Row
from anymps._settings._scripts import (
    BenchSettings,
    CompareSettings,
    FixSettings,
    PlanSettings,
    PytestSettings,
    ReportSettings,
    RunSettings,
    rows,
)

FACES: Final[Mapping[str, type[Any]]] = {
    "run": RunSettings,
    "report": ReportSettings,
    "bench": BenchSettings,
    "compare": CompareSettings,
    "plan": PlanSettings,
    "fix": FixSettings,
    "diff": DiffSettings,
    "join": JoinSettings,
    "join-manifests": JoinManifestsSettings,
    "doctor": DoctorSettings,
    "coverage": CoverageSettings,
    "convert": ConvertSettings,
    "kernels add": KernelsAddSettings,
    "kernels list": KernelsListSettings,
    "kernels show": KernelsShowSettings,
    "kernels remove": KernelsRemoveSettings,
    "pytest": PytestSettings,
}
"""The commands, and pytest, with the class of what each takes; commands without the device share nothing."""


def rows_of(face: str) -> tuple[Row, ...]:
    """The rows that a command, or `pytest`, takes: of those that are shared what names it, and all its own."""
    shared = {row.name for row in rows()}
    return tuple(
        row
        for row in rows(FACES[face])
        if row.name not in shared or (row.pytest if face == "pytest" else face in row.commands)
    )
