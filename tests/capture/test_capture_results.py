"""The results of a call stand in a recording as the operator's schema lists them, from both sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import anymps
from anymps.record import Fate

pytestmark = pytest.mark.usefixtures("virtual_device")

ATEN = torch.ops.aten


def on_mps(*sizes: int) -> torch.Tensor:
    """Some numbers."""
    return torch.ones(sizes, device="mps")


def _lstm_backward() -> Any:
    """What a layer's backward calls, with the gradient of its output alone."""
    x, state, weights = _lstm()
    output, _, _, gates, cells, fused = ATEN._lstm_mps(x, state, weights, True, 1, 0.0, True, False, True)
    return ATEN.lstm_mps_backward(
        torch.ones_like(output), None, None, gates, cells, x, fused, state, weights, True, 1, 0.0, True, False, True
    )


def _lstm() -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Two sequences of three vectors of 4 numbers, and a layer of 5."""
    return (
        on_mps(2, 3, 4),
        [on_mps(1, 2, 5), on_mps(1, 2, 5)],
        [on_mps(20, 4), on_mps(20, 5), on_mps(20), on_mps(20)],
    )


# Operators whose results differ in size or dtype, so that another order shows.
CALLS: dict[str, Callable[[], Any]] = {
    "native_batch_norm": lambda: ATEN.native_batch_norm(
        on_mps(2, 3, 4, 5), on_mps(3), on_mps(3), on_mps(3), on_mps(3), True, 0.1, 1e-5
    ),
    "native_batch_norm_backward": lambda: ATEN.native_batch_norm_backward(
        on_mps(2, 3, 4, 5), on_mps(2, 3, 4, 5), on_mps(3), on_mps(3), on_mps(3), on_mps(3), on_mps(3), True, 1e-5,
        [True, True, True],
    ),
    "native_layer_norm": lambda: ATEN.native_layer_norm(on_mps(3, 4, 5), [5], on_mps(5), on_mps(5), 1e-5),
    "native_layer_norm_backward": lambda: ATEN.native_layer_norm_backward(
        on_mps(3, 4, 5), on_mps(3, 4, 5), [5], on_mps(3, 4, 1), on_mps(3, 4, 1), on_mps(5), on_mps(5),
        [True, True, True],
    ),
    "native_group_norm": lambda: ATEN.native_group_norm(on_mps(2, 6, 4), on_mps(6), on_mps(6), 2, 6, 4, 3, 1e-5),
    "native_group_norm_backward": lambda: ATEN.native_group_norm_backward(
        on_mps(2, 6, 4), on_mps(2, 6, 4), on_mps(2, 3), on_mps(2, 3), on_mps(6), 2, 6, 4, 3, [True, True, True]
    ),
    "linear_backward": lambda: ATEN.linear_backward(on_mps(4, 5), on_mps(4, 7), on_mps(7, 5), [True, True, True]),
    "convolution_backward": lambda: ATEN.convolution_backward(
        on_mps(2, 6, 4, 4), on_mps(2, 3, 4, 4), on_mps(6, 3, 3, 3), [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        [True, True, True],
    ),
    "nll_loss_forward": lambda: ATEN.nll_loss_forward(
        on_mps(3, 4), torch.zeros(3, dtype=torch.int64, device="mps"), None, 0, -100
    ),
    "_lstm_mps": lambda: ATEN._lstm_mps(*_lstm(), True, 1, 0.0, True, False, True),
    "lstm_mps_backward": _lstm_backward,
    "max": lambda: ATEN.max.dim(on_mps(3, 4), 1),
    "topk": lambda: ATEN.topk(on_mps(6, 9), 2),
    "_unique2": lambda: ATEN._unique2(on_mps(9), True, True, True),
}  # fmt: skip


def text(tensor: torch.Tensor) -> str:
    """As a recording writes it."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


@pytest.mark.parametrize("source", ["native", "observer"])
@pytest.mark.parametrize("operator", CALLS)
def test_results_stand_in_their_order(operator: str, source: str) -> None:
    """A reader finds the output of a batch norm first, and then its mean."""
    with anymps.record(source=source) as capture:
        made = CALLS[operator]()
    recording = capture.recording
    signatures = [recording.signature(call.signature) for call in recording.calls()]
    (found,) = {
        one.outputs
        for one in signatures
        if one.operator.partition(".")[0] == f"aten::{operator}" and one.fate is not Fate.MARK
    }
    assert found == tuple(text(result) for result in tree_leaves(made) if result is not None)
