"""One line for each trainer: some steps of a training are recorded and judged, on the virtual device and on a Mac.

Lightning and Transformers are optional; each is imported when the name of its callback is first asked for. For
Accelerate, and for a loop of your own, there is `steps`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from anymps.integrations._steps import FIRST, LAST, Judged, Steps, steps

if TYPE_CHECKING:
    from anymps.integrations._lightning import LightningCallback
    from anymps.integrations._transformers import TransformersCallback

__all__ = ["FIRST", "LAST", "Judged", "LightningCallback", "Steps", "TransformersCallback", "steps"]

_HOMES = {
    "LightningCallback": "anymps.integrations._lightning",
    "TransformersCallback": "anymps.integrations._transformers",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value
