"""What a report says of numbers and kernels: whose kernels computed, and what share only Apple knows."""

from __future__ import annotations

import pytest

from anymps.record import Fate, Recording, RecordingBuilder
from anymps.report._checked import numbers, own_kernels
from anymps.rules import has_metal_kernel

CHECKED = {"compared": 4, "operators": 2, "wrong": 0, "left_out": {}}
NEWER = "addcmul"
"""An operator whose first kernel came with 2.15."""


def recorded(**meta: object) -> Recording:
    """Three calls of what has a kernel since 2.15, and one of `add`."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0+cpu", "virtual": True, "numbers": CHECKED, **meta})
    for number, name in enumerate(("add.Tensor", *[NEWER] * 3)):
        builder.entry(f"aten::{name}", start_ns=number * 10, duration_ns=5, fate=Fate.NATIVE)
    return builder.close()


RELEASE = " On a Mac{}, MPSGraph computes 75 % of the calls, and how it rounds is not public; PyTorch's own "


@pytest.mark.parametrize(
    ("torch", "kernels", "said"),
    [
        ("2.13.0+cpu", "2.13.0", RELEASE.format("")),
        ("2.13.0+cpu", "", RELEASE.format("")),
        ("2.13.0+cpu", "2.15.0", ""),  # it has kernels of both
        ("2.15.0", "2.13.0", RELEASE.format(" with torch 2.13.0")),
    ],
)
def test_the_share_of_mpsgraph_is_that_of_the_kernels_release(torch: str, kernels: str, said: str) -> None:
    """Of the release whose numbers the run had; it is named where it is not the installed one."""
    assert not has_metal_kernel(NEWER, (2, 13))
    made = recorded(torch_version=torch, kernels_torch=kernels)
    told = numbers(made.run, made.operators())
    assert told is not None
    assert said in told.in_full
    assert ("MPSGraph" in told.in_full) is bool(said)


def test_a_run_without_calls_has_no_share_of_kernels() -> None:
    """`0 of 0` says nothing."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0", "kernels_torch": "2.15.0", "real_calls": {}})
    share = own_kernels(builder.close().run, ())
    assert share is not None
    assert share.in_short == share.in_full == "No calls ran on mps, so the kernels of torch 2.15.0 computed none."
