"""Runs in the process that reruns failing tests without mps: hides mps there, and notes how they end."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from anymps._manifest import key

FOLDER = "ANYMPS_RERUN"
"""The variable that names the folder: `tests.json` says which tests, `ended.jsonl` takes how they ended."""
TESTS, ENDED = "tests.json", "ended.jsonl"

_DEVICES = re.compile(r"[\w:]+(?:,[\w:]+)*")  # what can be a device, or a list of them
_MPS = re.compile(r"mps(?::\d+)?", re.IGNORECASE)
_WORD = re.compile(r"(?<![A-Za-z0-9])mps(?::\d+)?(?![A-Za-z0-9])")  # in a test's id: `[mps-float32]`, `test_sum_mps`
_CLASS = re.compile(r"(?<=[a-z0-9_])MPS(?=::)")  # `TestSumMPS`, as torch.testing._internal makes them
_NAMED = re.compile(r"\bmps\b", re.IGNORECASE)
# What torch without mps answers; a process that a test has started prints it (torch 2.11 to 2.13, Linux).
_REFUSED = re.compile(r"not linked with support for mps devices|without MPS backend|from the 'MPS' backend")
_NOT_DEVICES = ("keyword", "markexpr")  # of pytest's own options: `-k mps`, `-m mps`

_ASKED = pytest.StashKey[list[str]]()  # the tests that an item was picked for


def pytest_load_initial_conftests() -> None:
    """Suites that choose their device by a variable (`PYRO_DEVICE=mps`) choose the CPU. Plugins may have set it."""
    os.environ.update({name: without_mps(value) for name, value in os.environ.items()})


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """So do those that choose it by an option (`--device=mps`), on the command line or in a file."""
    options = vars(config.option)
    for name, value in options.items():
        if name in _NOT_DEVICES:
            continue
        if isinstance(value, str):
            options[name] = without_mps(value)
        elif isinstance(value, list) and any(isinstance(part, str) and _MPS.fullmatch(part) for part in value):
            options[name] = list(dict.fromkeys(without_mps(part) if isinstance(part, str) else part for part in value))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all others. Of a test that is made for each device, the CPU's is taken."""
    wanted = json.loads((Path(os.environ[FOLDER]) / TESTS).read_text(encoding="utf-8"))
    there = {key(item.nodeid) for item in items}
    asked: dict[str, list[str]] = {}
    for test in wanted:
        twin = on_cpu(test)
        asked.setdefault(twin if twin in there else test, []).append(test)
    left_out = [item for item in items if key(item.nodeid) not in asked]
    items[:] = [item for item in items if key(item.nodeid) in asked]
    for item in items:
        item.stash[_ASKED] = asked[key(item.nodeid)]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[object]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a phase ended, and whether mps was met: then nothing is known of the test without it."""
    report = yield
    met = _is_there() or (report.failed and (_names_mps(call) or _printed_refusal(report)))
    tests = item.stash[_ASKED]
    row = {"tests": tests, "phase": report.when, "failed": report.failed, "met_mps": met}
    with (Path(os.environ[FOLDER]) / ENDED).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return report


def without_mps(value: str) -> str:
    """`cpu` for `mps` or `mps:0`, also in a list with commas; all other values as they are."""
    if "mps" not in value.lower() or not _DEVICES.fullmatch(value):
        return value
    parts = value.split(",")
    if not any(_MPS.fullmatch(part) for part in parts):
        return value
    return ",".join(dict.fromkeys("cpu" if _MPS.fullmatch(part) else part for part in parts))


def on_cpu(test: str) -> str:
    """The id that a test made for each device has on the CPU: `TestSumMPS::test_sum_mps` gives `…CPU::test_sum_cpu`."""
    file, separator, names = test.partition("::")
    return file + separator + _WORD.sub("cpu", _CLASS.sub("CPU", names))


def _is_there() -> bool:
    """Whether something has switched an mps device on in this process: a conftest that calls `anymps.enable()`."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.backends.mps.is_available())


def _names_mps(call: pytest.CallInfo[object]) -> bool:
    """Whether an exception, or one behind it, speaks of mps."""
    error = call.excinfo.value if call.excinfo is not None else None
    for _ in range(10):
        if error is None:
            break
        if _NAMED.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _printed_refusal(report: pytest.TestReport) -> bool:
    """Whether what the test or a process of it has printed holds torch's refusal of the device."""
    return any(_REFUSED.search(text) for _, text in report.sections)
