"""The source of a recording without the native core: a dispatch mode, with the tape and the ledger in Python."""

from __future__ import annotations

from anymps.capture.dispatch._core import DispatchCore

__all__ = ["DispatchCore"]
