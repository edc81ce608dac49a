"""PyTorch's own compiled Metal kernels, read from the macOS wheel that a user adds.

anymps contains nothing of a wheel: the kernels are in the user's cache only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.kernels._launcher import Launcher, check_tools
    from anymps.kernels._library import CompiledKernel, KernelLibrary
    from anymps.kernels._llvm import module_text
    from anymps.kernels._metadata import BufferArgument, Signature, StructField, read_signature
    from anymps.kernels._metallib import Metallib, StoredKernel, dtypes_of, families_of, operator_of
    from anymps.kernels._store import add_kernels, added_release, added_releases, open_kernels, remove_kernels
    from anymps.kernels._wheel import download, read_release, wheel_digest

if not TYPE_CHECKING:
    __getattr__ = lazy_face(
        __name__,
        {
            "_launcher": "Launcher check_tools",
            "_library": "CompiledKernel KernelLibrary",
            "_llvm": "module_text",
            "_metadata": "BufferArgument Signature StructField read_signature",
            "_metallib": "Metallib StoredKernel dtypes_of families_of operator_of",
            "_store": "add_kernels added_release added_releases open_kernels remove_kernels",
            "_wheel": "download read_release wheel_digest",
        },
    )
