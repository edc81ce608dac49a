"""Calls as the mode of PyTorch's own kernels describes them, without the kernels: which are launched, and how."""

from __future__ import annotations

from typing import Any

import torch

from anymps.metal.kernels.launches import DESCRIBED, Call, Launch, Work


class EveryKernel:
    """A release that has every kernel."""

    def __contains__(self, name: object) -> bool:
        return True


def describe(
    operator: str,
    written: tuple[torch.Tensor, ...] = (),
    release: tuple[int, int] = (2, 13),
    foreign: frozenset[str] = frozenset(),
    **given: Any,
) -> Work | None:
    """The work of a call that writes into some of its tensors."""
    return DESCRIBED[operator](Call(f"aten::{operator}", given, written, foreign, EveryKernel(), release))


def launches_of(work: Work | None) -> tuple[Launch, ...]:
    """Its launches."""
    assert work is not None
    return work.launches


def launch_of(work: Work | None) -> Launch:
    """Its only launch."""
    (launch,) = launches_of(work)
    return launch
