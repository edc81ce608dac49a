"""Whether Metal kernels are to be checked: the variable that says so. Needs no torch."""

from __future__ import annotations

import os

from anymps._errors import EnableError

CHECK_VARIABLE = "ANYMPS_CHECK_SHADERS"


def checks_shaders() -> bool:
    """Whether `ANYMPS_CHECK_SHADERS=1` asks for it. Raises EnableError for another value than 1 and 0."""
    text = os.environ.get(CHECK_VARIABLE, "0")
    if text not in ("", "0", "1"):
        raise EnableError(f"anymps: {CHECK_VARIABLE}={text!r} must be 1 or 0")
    return text == "1"
