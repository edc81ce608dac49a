"""Files beside a script that hide an installed package, and code that handles out-of-memory errors."""

from __future__ import annotations

import os
import re
import sys
from importlib.machinery import PathFinder

from anymps._paths import package_of

_RETRIES = re.compile(rb"out of memory|OutOfMemoryError|find_executable_batch_size|auto_find_batch_size")
"""What code says that catches torch's error, or leaves that to accelerate or transformers."""


def hidden_package(folder: str) -> str:
    """In one sentence, the file of `folder` that was imported in place of an installed package; or nothing."""
    place = os.path.realpath(folder)
    elsewhere = [path for path in sys.path if os.path.realpath(path) != place]
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name == "__main__" or not file:
            continue
        own = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file
        if os.path.dirname(os.path.realpath(own)) == place and PathFinder.find_spec(name, elsewhere) is not None:
            return (
                f"{os.path.basename(own)} beside the script is imported in place of the package {name}, which torch "
                "needs: give it another name"
            )
    return ""


def tells_of_retries(folder: str) -> bool:
    """Whether a loaded module of `folder` says what to do where memory runs out."""
    inside = os.path.realpath(folder) + os.sep
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not os.path.realpath(file).startswith(inside) or package_of(file):
            continue
        try:
            with open(file, "rb") as source:
                if _RETRIES.search(source.read()):
                    return True
        except OSError:
            continue
    return False
