"""Every setting once, as a row: type, default, flag, variable, key, help, the faces that take it.

The options of the commands and of `pytest --mps`, `%%mps`, the arguments of `anymps.enable`, the variables that child
processes inherit and the tables of docs/settings.md are made from these rows. A face fills one object of its class and
hands that on. A new setting is a field of a class here, and what acts on it.
"""

from __future__ import annotations

__all__ = [
    "FACES",
    "BenchSettings",
    "CompareSettings",
    "ConvertSettings",
    "CoverageSettings",
    "DiffSettings",
    "DoctorSettings",
    "FixSettings",
    "JoinManifestsSettings",
    "JoinSettings",
    "KernelsAddSettings",
    "KernelsListSettings",
    "KernelsRemoveSettings",
    "KernelsShowSettings",
    "PlanSettings",
    "PytestSettings",
    "ReportSettings",
    "Row",
    "RunSettings",
    "Settings",
    "asked_for",
    "row_of",
    "rows",
    "rows_of",
    "set_variable",
    "variable_of",
]

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
from anymps._settings._faces import FACES, rows_of
from anymps._settings._row import Row
from anymps._settings._scripts import (
    BenchSettings,
    CompareSettings,
    FixSettings,
    PlanSettings,
    PytestSettings,
    ReportSettings,
    RunSettings,
    Settings,
    asked_for,
    row_of,
    rows,
    set_variable,
    variable_of,
)
