"""PyTorch's own compiled kernels, to be called on the virtual device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps.device._enable import native
from anymps.rules import installed_torch

if TYPE_CHECKING:
    from anymps.kernels import KernelLibrary


def metal_kernels(release: str | None = None) -> KernelLibrary:
    """The Metal kernels that were added with ``anymps kernels add``, as a library of callables.

    A kernel is called like one of ``torch.mps.compile_shader``: ``kernels.abs_dense_float_float(out, x, 8,
    threads=2)``. Pass its buffers in order or by name, and structs as dicts. `release` is the release of torch; the
    default is the installed one. Raises KernelsError if none were added, llvmlite is missing or a kernel cannot run
    here, EnableError without the device, and BuildError without a C++ compiler.
    """
    from anymps.kernels import KernelLibrary, open_kernels

    core = native()
    core.begin_margins()
    return KernelLibrary(open_kernels(release or str(installed_torch().version).partition("+")[0]), core)
