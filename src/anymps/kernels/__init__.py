"""PyTorch's own compiled Metal kernels, read from the macOS wheel that a user adds.

anymps contains nothing of a wheel: the kernels are in the user's cache only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.kernels._launcher import Launcher, check_tools
    from anymps.kernels._library import CompiledKernel, KernelLibrary
    from anymps.kernels._metadata import BufferArgument
    from anymps.kernels._metallib import Metallib
    from anymps.kernels._store import add_kernels, added_release, added_releases, open_kernels
    from anymps.kernels._wheel import download, read_release, wheel_digest

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
