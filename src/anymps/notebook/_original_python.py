"""Python as it was before a notebook's cells, which may replace functions and modules, for its reports."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from anymps._own_imports import hide_from_script
from anymps._own_python import OwnPython

_python: OwnPython | None = None


def remember() -> None:
    """Take down what is there, once; modules that the notebook has beside it come before packages that we loaded."""
    global _python
    if _python is None:
        _python = OwnPython()
        hide_from_script()


def as_it_was() -> AbstractContextManager[None]:
    """Work, within this, in that Python; in the one that is there where nothing was taken down."""
    return nullcontext() if _python is None else _python.restored()
