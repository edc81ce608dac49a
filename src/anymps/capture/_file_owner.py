"""Whose a source file is: an installed package's or Python's own, or the program's."""

from __future__ import annotations

import sysconfig
from typing import Final

_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib").replace("\\", "/") + "/"


def is_library(file: str) -> bool:
    """Whether a file is an installed package's, or Python's own as `unittest` is."""
    file = file.replace("\\", "/")
    return "/site-packages/" in file or "/dist-packages/" in file or file.startswith(_STANDARD_LIBRARY)
