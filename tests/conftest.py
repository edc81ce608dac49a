"""The device under test: anymps' own, or with `ANYMPS_TARGET=real` the one of the Mac that runs the tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from processes import MAC

if TYPE_CHECKING:
    import torch


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files of `long_files.txt` come first where several processes share them; xdist would begin with others."""
    if hasattr(config, "workerinput"):
        long = Path(__file__).with_name("long_files.txt").read_text(encoding="utf-8").splitlines()
        places = {file: place for place, file in enumerate(long)}
        items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(long)))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the collector need not walk half a million objects in each full collection.

    A test of the counters collects ten times, which took a second each.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def mps_device() -> Iterator[torch.device]:
    """`torch.device("mps")`, switched on once in this process.

    `ANYMPS_TARGET` is `real` or `virtual` and must be met; without it the device is whatever this machine can have.
    """
    import anymps

    anymps.enable(MAC, fallback=False, require=os.environ.get("ANYMPS_TARGET") or None, start_method="system")
    import torch

    yield torch.device("mps")
    torch.mps.synchronize()


@pytest.fixture(scope="session", autouse=True)
def device_before_backward(mps_device: torch.device) -> None:
    """The device is on before any test runs a backward on the CPU: after one it could not be switched on any more."""


@pytest.fixture(scope="session")
def virtual_device(mps_device: torch.device) -> torch.device:
    """The device, for tests about the Mac that it plays or about its own books: skipped on a real Mac."""
    import anymps

    if not anymps.is_virtual():
        pytest.skip("asks about the Mac that the virtual device plays")
    return mps_device


@pytest.fixture(scope="session", autouse=True)
def empty_inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What Inductor compiled in an earlier run of the tests must not change what this one sees."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.mktemp("inductor"))


@pytest.fixture
def still_memory(mps_device: torch.device) -> None:
    """Counters of the device's memory that only the test moves, with nothing cached before it."""
    from device.counters import settle

    settle()


@pytest.fixture
def hazards_put_back(virtual_device: torch.device) -> Iterator[None]:
    """Afterwards the known bugs that were in force before the test are in force again."""
    from anymps.device import enforce_hazards, known_hazards

    before = known_hazards()
    yield
    enforce_hazards(before)


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named without their directory, as people do."""
    monkeypatch.chdir(tmp_path)
