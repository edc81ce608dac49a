"""LLVM through llvmlite: an optional dependency, which is imported only if it is needed."""

from __future__ import annotations

import functools
from typing import Any

from anymps._errors import KernelsError

_INSTALL = "pip install 'llvmlite>=0.50,<0.51'"
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
        raise KernelsError(f"compiled Metal kernels are read with llvmlite: {_INSTALL}") from None
    parts = llvmlite.__version__.split(".")
    if tuple(int(part) for part in parts[:2]) != _SUPPORTED:
        wanted = ".".join(map(str, _SUPPORTED))
        raise KernelsError(
            f"compiled Metal kernels are read with llvmlite {wanted}, and {llvmlite.__version__} is installed: "
            f"{_INSTALL}"
        )
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding
