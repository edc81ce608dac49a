"""Where the host waits: each call that waits on a Mac is on the tape with its kind of wait, its neighbours are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anymps
from anymps.record import Wait
from anymps.rules import check_supported
from anymps.verify.cases import WAITING
from device.compare import needs_kernel

pytestmark = [
    pytest.mark.usefixtures("virtual_device"),
    # torch's words on sparse tensors, and the fallback's on the first of its operators.
    pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:The operator:UserWarning"),
]

NOTHING: set[Wait] = set()
RELEASE = check_supported(torch.__version__).release


def waits_of(call: Callable[..., object], *arguments: object, **options: object) -> set[Wait]:
    """The kinds of wait on the tape of a call."""
    with anymps.record() as capture:
        call(*arguments, **options)
    return {wait.wait for wait in capture.recording.waits()}


@pytest.mark.parametrize("name", WAITING)
def test_calls_that_wait(name: str) -> None:
    """Each call records the waits that a Mac would make in this release, and no other."""
    case = WAITING[name]
    if case.kernel:
        needs_kernel(case.kernel)
    if name == "accelerator empty_cache" and RELEASE < (2, 13):
        pytest.skip("torch.accelerator knows nothing of mps memory before torch 2.13")
    expected = case.waits if case.since <= RELEASE <= case.until else NOTHING
    if name == "solve" and not expected:
        expected = {Wait.ITEM}  # torch itself reads the status (torch/csrc, at::linalg_solve), whatever the kernel does
    assert waits_of(case.call, *case.make()) == expected


@pytest.mark.usefixtures("still_memory")
def test_an_allocation_that_drains_the_queue() -> None:
    """An allocation for which cached buffers have to go waits; one that fits does not."""
    torch.mps.empty_cache()
    part, whole = 1 << 30, torch.mps.recommended_max_memory()  # each part has a heap of its own
    held = torch.mps.driver_allocated_memory()
    first, second = (torch.empty(part, dtype=torch.uint8, device="mps") for _ in range(2))
    torch.mps.set_per_process_memory_fraction((held + 3.2 * part) / whole)
    try:
        del first, second
        kept = []
        assert waits_of(lambda: kept.append(torch.empty(part, dtype=torch.uint8, device="mps"))) == NOTHING
        # From torch 2.14 on the heaps that stand empty go first, without a wait.
        expected = {Wait.EMPTY_CACHE} if RELEASE < (2, 14) else NOTHING
        assert waits_of(lambda: torch.empty(int(1.7 * part), dtype=torch.uint8, device="mps")) == expected
    finally:
        torch.mps.set_per_process_memory_fraction(1.7)
