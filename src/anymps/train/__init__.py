"""For your own training loop: what holds on `mps`, `cuda` and `cpu` alike."""

from __future__ import annotations

from anymps.train import timing

__all__ = ["timing"]
