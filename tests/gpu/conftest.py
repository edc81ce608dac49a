"""Tests of the `cuda` substrate: marked `gpu`, and skipped with the reason where no GPU can compute."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

from anymps.device._gpus import look_for_gpus, why_no_gpu
from gpu.sides import SIDE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder needs a GPU."""
    folder = str(Path(__file__).parent) + os.sep
    here = [item for item in items if str(item.path).startswith(folder)]
    why = str(why_no_gpu(look_for_gpus()) or "") if here and SIDE == "cuda" else ""
    if why and os.environ.get("ANYMPS_GPU_TESTS"):
        raise pytest.UsageError(why)  # asked for by name: tests/gpu.sh
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def _shared(nodeid: str) -> str:
    """What a test shares with others, which the same worker has to run: the processes of a group, or a training."""
    name = nodeid.rpartition("::")[2]
    if name.startswith("test_case["):
        return name.removeprefix("test_case[").partition("_")[0]
    if name == "test_the_first_steps_agree_closely":
        return "losses"
    return "hundred steps" if "_of_a_hundred_steps" in name else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups for `--dist loadgroup`, by the names of the tests: pytest 9.2 does not let xdist add a group to a name."""
    if config.getoption("dist") != "loadgroup":
        return None
    scheduler = importlib.import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduler._split_scope = _shared
    return scheduler


@pytest.fixture(scope="session")
def mps_device() -> Any:
    """Nothing: each test here has the device in processes of its own."""
    pytest.skip("the tests of the cuda substrate switch the device on in their own processes")


@pytest.fixture(scope="session", autouse=True)
def device_before_backward() -> None:
    """Not in this process."""
