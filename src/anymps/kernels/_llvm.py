"""LLVM through llvmlite: an optional dependency, which is imported only if it is needed."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any, Final

from anymps._errors import KernelsError
from anymps._own_process import SAFE_PATH

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


# The path comes from us: the current folder must not be among the places that modules come from.
_PRINT: Final = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import llvmlite.binding as binding
try:
    text = str(binding.parse_bitcode(sys.stdin.buffer.read()))
except RuntimeError as error:
    sys.exit(str(error))
sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
"""
_SECONDS: Final = 60.0


def module_text(bitcode: bytes, name: str) -> str:
    """The text of a module of bitcode. Raises KernelsError if LLVM cannot read it.

    LLVM's reader ends its process where damaged bitcode meets one of its assertions, so it reads in one of its own.
    """
    llvm()
    path = [os.path.abspath(place) for place in sys.path if place]
    try:
        command = [sys.executable, *SAFE_PATH, "-c", _PRINT, json.dumps(path)]
        done = subprocess.run(command, check=False, input=bitcode, capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        reason = f"it took more than {_SECONDS:.0f} s"
    else:
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "surrogateescape")
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = said[-1] if said and done.returncode == 1 else "it is damaged"
    raise KernelsError(f"LLVM cannot read the bitcode of the kernel {name}: {reason}")
