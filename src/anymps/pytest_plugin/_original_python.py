"""Python as it was before the suite, which may replace functions and modules, for the session's reports."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from anymps._command_settings import PytestSettings
from anymps._own_imports import forget, own_imports
from anymps._own_python import OwnPython

_PYTHON = pytest.StashKey[OwnPython]()


def remember(config: pytest.Config, settings: PytestSettings) -> None:
    """Take down what is there, before a conftest is loaded; only for a session that writes files at its end."""
    files = settings.reports or settings.recording or settings.update_manifest or settings.update_baseline
    if not files or _PYTHON in config.stash:
        return
    with own_imports(), forget():
        if settings.reports:
            import anymps.pytest_plugin._reports  # noqa: F401  # renderers take their time to load
        python = config.stash[_PYTHON] = OwnPython()
    config.add_cleanup(python.close)


def as_it_was(config: pytest.Config) -> AbstractContextManager[None]:
    """Work, within this, in that Python; in the one that is there where nothing was taken down."""
    python = config.stash.get(_PYTHON, None)
    return nullcontext() if python is None else python.restored()
