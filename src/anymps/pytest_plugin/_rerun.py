"""Loaded in the process that runs failing tests again without mps: picks them out, and notes which fail there, too."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from anymps._manifest import key

FOLDER = "ANYMPS_RERUN"
"""The variable that names the folder: `tests.json` says which tests, `failed.jsonl` takes what failed."""
TESTS, FAILED = "tests.json", "failed.jsonl"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all others."""
    wanted = set(json.loads((Path(os.environ[FOLDER]) / TESTS).read_text(encoding="utf-8")))
    others = [item for item in items if key(item.nodeid) not in wanted]
    items[:] = [item for item in items if key(item.nodeid) in wanted]
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[object]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a failure, and whether it speaks of mps: then it is the missing device that fails the test here."""
    report = yield
    if report.failed:
        row = {"test": key(item.nodeid), "about_mps": "mps" in _said(call).lower()}
        with (Path(os.environ[FOLDER]) / FAILED).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return report


def _said(call: pytest.CallInfo[object]) -> str:
    """The texts of an exception and of those behind it."""
    error = call.excinfo.value if call.excinfo is not None else None
    texts: list[str] = []
    while error is not None and len(texts) < 10:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(texts)
