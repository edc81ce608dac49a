"""`pytest --mps`: a test suite as a gate for the mps device. Without the option it loads and changes nothing."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

import pytest

from anymps.pytest_plugin import _options
from anymps.pytest_plugin._fixtures import mps_device, mps_record


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every option has a twin for the configuration file."""
    _options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Switch the device on before any conftest or test module can ask for it."""
    if _options.wanted(early_config, early_config.known_args_namespace):
        _prepare()
        from anymps.pytest_plugin._start import switch_on

        switch_on(early_config, early_config.known_args_namespace)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make the marks known; with `--mps`, put the gate in place."""
    for text in _options.MARKERS:
        config.addinivalue_line("markers", text)
    if _options.wanted(config, config.option):
        _prepare()
        from anymps.pytest_plugin._start import install

        install(config)
    else:
        _options.check_unused(config.option)


class _AsTheyAre(importlib.abc.MetaPathFinder):
    """Finds the modules of anymps before pytest does, which would rewrite the assertions of each: there are none."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Look for a module of anymps where Python does, and for no other."""
        return importlib.machinery.PathFinder.find_spec(name, path) if name.startswith("anymps.") else None


def _prepare() -> None:
    """Have anymps load fast. Raises UsageError, in one line, where there is no torch to test with."""
    if not any(isinstance(finder, _AsTheyAre) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AsTheyAre())
    if importlib.util.find_spec("torch") is None:
        from anymps.rules import SUPPORTED

        raise pytest.UsageError(f"--mps: torch is not installed; install torch {SUPPORTED}")
