"""LLVM, as llvmlite brings it: an optional dependency, asked for where it is needed."""

from __future__ import annotations

import functools
from typing import Any

from anymps._errors import KernelsError

_SUPPORTED = (0, 50)  # the text of its printer is what is read and rewritten here


@functools.cache
def llvm() -> Any:
    """The module ``llvmlite.binding``, ready to compile for this machine.

    Raises KernelsError if it is not installed, or in a release whose printer is unknown here.
    """
    try:
        import llvmlite
        import llvmlite.binding as binding
    except ImportError:
        raise KernelsError("compiled Metal kernels are read with llvmlite: pip install 'anymps[kernels]'") from None
    parts = llvmlite.__version__.split(".")
    if tuple(int(part) for part in parts[:2]) != _SUPPORTED:
        wanted = ".".join(map(str, _SUPPORTED))
        raise KernelsError(
            f"compiled Metal kernels are read with llvmlite {wanted}, and {llvmlite.__version__} is installed: "
            "pip install 'anymps[kernels]'"
        )
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def module_text(bitcode: bytes, name: str) -> str:
    """The text of a module of bitcode. Raises KernelsError if LLVM cannot read it."""
    try:
        return str(llvm().parse_bitcode(bitcode))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise KernelsError(f"LLVM cannot read the bitcode of the kernel {name}: {reason}") from None
