"""Which tests of the manifest this session would have run if they still existed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePath

import pytest


class Selection:
    """Filled during collection: the tests before any deselection, the collectors reached, and those that failed."""

    def __init__(self, config: pytest.Config) -> None:
        self.collected: set[str] = set()
        self.reached: set[str] = set()
        self.failed: set[str] = set()
        self._config = config

    def gone(self, tests: Iterable[str]) -> list[str]:
        """The listed tests that are no longer there, as far as this session can tell.

        A test is judged if its file, or the file's directory, or the test itself was named, on the command line or by
        `testpaths`. With `--lf` whole files are left out, and nothing is judged.
        """
        config = self._config
        if config.getoption("lf", False) or config.getoption("collectonly", False):
            return []
        arguments = [_argument(config, text) for text in config.args]
        return sorted(test for test in tests if test not in self.collected and self._was_asked_for(test, arguments))

    def _was_asked_for(self, test: str, arguments: list[tuple[str, str]]) -> bool:
        file, _, inner = test.partition("::")
        if any(test == node or test.startswith(f"{node}::") for node in self.failed if node):
            return False
        path = os.path.normpath(self._config.rootpath / file)
        if file not in self.reached and os.path.exists(path):
            return False  # ignored, or not a file of this run
        if self._config.getoption("pyargs", False):
            return file in self.reached and not any(within for _, within in arguments)
        return any(
            _lies_in(path, place) and (not within or inner == within or inner.startswith((f"{within}::", f"{within}[")))
            for place, within in arguments
        )


def _argument(config: pytest.Config, text: str) -> tuple[str, str]:
    """Path and inner part of `tests/test_x.py::TestX::test_y[a::b]`."""
    base, bracket, rest = text.partition("[")
    path, _, inner = base.partition("::")
    return os.path.normpath(config.invocation_params.dir / path), inner + bracket + rest


def _lies_in(path: str, place: str) -> bool:
    return path == place or PurePath(place) in PurePath(path).parents
