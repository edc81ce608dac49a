"""Tests of the `cuda` substrate: marked `gpu`, and skipped with the reason where no card can compute."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from anymps.device._cards import look_for_cards, why_no_card
from gpu.sides import SIDE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder needs a card."""
    folder = str(Path(__file__).parent) + os.sep
    here = [item for item in items if str(item.path).startswith(folder)]
    why = why_no_card(look_for_cards()) if here and SIDE == "cuda" else ""
    if why and os.environ.get("ANYMPS_GPU_TESTS"):
        raise pytest.UsageError(why)  # asked for by name: tests/gpu.sh
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def mps_device() -> Any:
    """Nothing: each test here has the device in processes of its own."""
    pytest.skip("the tests of the cuda substrate switch the device on in their own processes")


@pytest.fixture(scope="session", autouse=True)
def device_before_backward() -> None:
    """Not in this process."""
