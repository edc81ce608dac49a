"""A notebook's reports in Python as it was before its cells, which may replace functions and modules as they like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anymps._own_imports import hide_from_script
from anymps._own_python import OwnPython

_python: OwnPython | None = None


def remember() -> None:
    """Take down what is there, once; modules that the notebook has beside it come before packages that we loaded."""
    global _python
    if _python is None:
        _python = OwnPython()
        hide_from_script()


@contextmanager
def as_it_was() -> Iterator[None]:
    """Work, within this, in that Python; in the one that is there where nothing was taken down."""
    if _python is None:
        yield
        return
    with _python.restored():
        yield
