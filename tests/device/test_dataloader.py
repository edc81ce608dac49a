"""DataLoader beside the device: workers, pin_memory, moving batches, forked processes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from device.compare import assert_same, values
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

FORK = {"multiprocessing_context": "fork"}


class Squares(Dataset[tuple[np.ndarray, int]]):
    """NumPy items, as real data sets have them."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((3,), index * index, dtype=np.float32), index


class Stream(IterableDataset[int]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        info = torch.utils.data.get_worker_info()
        return iter(range(info.id, 8, info.num_workers) if info else range(8))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_from_workers_move_to_the_device(workers: int) -> None:
    """Batches made in worker processes arrive whole and move to mps, with and without non_blocking."""
    loader = DataLoader(Squares(), batch_size=4, num_workers=workers, **(FORK if workers else {}))
    seen = []
    for x, y in loader:
        there = x.to("mps", non_blocking=True)
        torch.mps.synchronize()
        assert_same(there, (y * y).float()[:, None].expand(-1, 3).contiguous())
        seen += y.tolist()
    assert list(range(10)) == seen


def test_iterable_datasets_and_persistent_workers() -> None:
    """Worker processes forked after the device was used work, and stay for the next epoch."""
    loader = DataLoader(Stream(), batch_size=2, num_workers=2, persistent_workers=True, **FORK)
    for _ in range(2):
        assert list(range(8)) == sorted(int(item) for batch in loader for item in batch.to("mps").cpu())


def test_pin_memory_is_warned_of_and_ignored() -> None:
    """pin_memory=True warns that mps has no use for it, and batches are ordinary CPU tensors."""
    with pytest.warns(UserWarning) as caught:
        batches = list(DataLoader(TensorDataset(values(4, 2)), batch_size=2, pin_memory=True))
    assert [str(warning.message) for warning in caught] == [
        "'pin_memory' argument is set as true but not supported on MPS now, device pinned memory won't be used."
    ]
    assert not batches[0][0].is_pinned()
    assert torch.equal(values(4, 2), torch.cat([batch[0] for batch in batches]))


def test_a_dataset_on_the_device_works_without_workers() -> None:
    """Tensors that are on mps already can be indexed and collated in the main process."""
    loader = DataLoader(TensorDataset(values(6, 2).to("mps")), batch_size=3)
    assert_same(torch.cat([batch[0] for batch in loader]), values(6, 2))


def test_a_forked_child_knows_that_it_is_one() -> None:
    """In a child forked after mps was used, `_mps_is_in_bad_fork()` is True, seeding skips mps, the parent is well."""
    lines = run_with_torch(
        ENABLE
        + """
import os
torch.ones(1, device="mps")
print(torch.mps._is_in_bad_fork(), flush=True)
pid = os.fork()
if pid == 0:
    torch.manual_seed(3)
    torch.seed()
    print(torch.mps._is_in_bad_fork(), torch._C._mps_is_in_bad_fork(), flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(status, torch.mps._is_in_bad_fork(), torch.ones(2, device="mps").sum().item())
"""
    ).lines
    assert ["False", "True True", "0 False 2.0"] == lines


@pytest.mark.filterwarnings("error")
def test_loading_without_pinning_is_silent() -> None:
    """A plain loader beside mps warns of nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(DataLoader(TensorDataset(values(4, 2)), batch_size=2))
    assert [] == [str(warning.message) for warning in caught]
