"""Whether Metal kernels should be checked, according to the environment. Needs no torch."""

from __future__ import annotations

from anymps._settings import asked_for

_ALL = "all"


def checks_shaders() -> bool:
    """Whether `ANYMPS_CHECK_SHADERS` asks for it. Raises EnableError for what is no number and not `all`."""
    return asked_for("check_shaders") is not None


def sample_seed() -> int | None:
    """The seed of the groups that are checked; None: all groups are."""
    which = asked_for("check_shaders")
    return None if which == _ALL else int(which)
