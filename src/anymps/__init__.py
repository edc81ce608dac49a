"""anymps: PyTorch's `mps` device (the Apple GPU) on any machine, and the tools to train well on it.

Importing it costs next to nothing: pytest imports it in every run for its plugin, with `--mps` or without. A name loads
what it needs when it is first asked for.

PYTEST_DONT_REWRITE keeps pytest from rewriting assertions, as it does in a plugin's package: there are none here, and
in a process that a recorded script has started, the package is imported before pytest can rewrite it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from anymps._errors import (
    AnympsError,
    BuildError,
    CheckpointError,
    CostError,
    EnableError,
    KernelsError,
    MacError,
    PlanError,
    RecordingError,
    RequireError,
    UnsupportedTorchError,
    UsageError,
)
from anymps._lazy import lazy_face
from anymps._version import __version__

if TYPE_CHECKING:
    from anymps.capture import record
    from anymps.device import enable, is_virtual, metal_kernels
    from anymps.mac import Mac, parse_mac
    from anymps.numerics import check_numbers
    from anymps.record import Recording

__all__ = [
    "AnympsError",
    "BuildError",
    "CheckpointError",
    "CostError",
    "EnableError",
    "KernelsError",
    "Mac",
    "MacError",
    "PlanError",
    "Recording",
    "RecordingError",
    "RequireError",
    "UnsupportedTorchError",
    "UsageError",
    "__version__",
    "check_numbers",
    "enable",
    "is_virtual",
    "metal_kernels",
    "parse_mac",
    "record",
]

_load = lazy_face(__name__, load_ipython_extension="notebook")  # `%load_ext anymps`

if not TYPE_CHECKING:
    __getattr__ = _load


class _Face(ModuleType):
    """This module: `record` is the function, also once the package of that name is imported."""

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})

    def _record(self) -> Any:
        return vars(self).get("_record_function") or _load("record")

    def _set_record(self, value: object) -> None:
        # The import system sets the package `anymps.record` here; all else is the function, or a test's stand-in.
        if not isinstance(value, ModuleType):
            vars(self)["_record_function"] = value

    def _delete_record(self) -> None:
        vars(self).pop("_record_function", None)

    if not TYPE_CHECKING:
        record = property(_record, _set_record, _delete_record)


sys.modules[__name__].__class__ = _Face
