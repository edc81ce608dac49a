"""PyTorch's own compiled Metal kernels, read from the macOS wheel that a user adds.

Nothing of a wheel is part of anymps: its kernels lie in the user's cache alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from anymps.metal.kernels._llvm import module_text
from anymps.metal.kernels._metadata import BufferArgument, PositionArgument, Signature, StructField, read_signature
from anymps.metal.kernels._metallib import Metallib, StoredKernel
from anymps.metal.kernels._names import operator_of
from anymps.metal.kernels._store import add_kernels, added_releases, open_kernels, remove_kernels
from anymps.metal.kernels._wheel import download

if TYPE_CHECKING:
    from anymps.metal.kernels._launcher import Launcher, check_tools
    from anymps.metal.kernels._library import CompiledKernel, KernelLibrary

__all__ = [
    "BufferArgument",
    "CompiledKernel",
    "KernelLibrary",
    "Launcher",
    "Metallib",
    "PositionArgument",
    "Signature",
    "StoredKernel",
    "StructField",
    "add_kernels",
    "added_releases",
    "check_tools",
    "download",
    "module_text",
    "open_kernels",
    "operator_of",
    "read_signature",
    "remove_kernels",
]


_NEED_TORCH = {
    "CompiledKernel": "_library",
    "KernelLibrary": "_library",
    "Launcher": "_launcher",
    "check_tools": "_launcher",
}


def __getattr__(name: str) -> Any:
    place = _NEED_TORCH.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"anymps.metal.kernels.{place}"), name)
