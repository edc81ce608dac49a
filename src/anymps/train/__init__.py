"""Tools for your own training loop, for `mps`, `cuda` and `cpu`."""

from __future__ import annotations

from anymps.train import timing

__all__ = ["timing"]
