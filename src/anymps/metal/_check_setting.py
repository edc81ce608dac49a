"""Whether Metal kernels should be checked, according to the environment. Needs no torch."""

from __future__ import annotations

from anymps._settings import asked_for


def checks_shaders() -> bool:
    """Whether `ANYMPS_CHECK_SHADERS=1` asks for it. Raises EnableError for another value than 1 and 0."""
    return bool(asked_for("check_shaders"))
