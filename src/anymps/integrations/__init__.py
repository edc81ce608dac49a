"""Callbacks for trainers: record and judge some steps of a training, on the virtual device and on a Mac.

Lightning and Transformers are optional; each is imported when the name of its callback is first asked for. For
Accelerate, and for a loop of your own, there is `steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.integrations._lightning import LightningCallback
    from anymps.integrations._steps import FIRST, LAST, Judged, Steps, steps
    from anymps.integrations._transformers import TransformersCallback

__all__ = ["FIRST", "LAST", "Judged", "LightningCallback", "Steps", "TransformersCallback", "steps"]

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
