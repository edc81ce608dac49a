"""The kernels of an LSTM that MPS runs as one graph."""

from collections import Counter

import pytest

from anymps import CostError, parse_mac
from anymps.cost import OperatorCall, predict_operator
from anymps.cost._predict import works_of

WEIGHTS = (
    "float32[256, 32]", "float32[256, 64]", "float32[256]", "float32[256]",
    "float32[256, 64]", "float32[256, 64]", "float32[256]", "float32[256]",
)  # fmt: skip
STATES = ("float32[2, 32, 64]", "float32[2, 32, 64]")
KEPT = ("float32[2, 16, 32, 256]", "float32[2, 16, 32, 64]")
MADE = ("float32[1, 16, 32, 64]", *KEPT, *STATES, "float32[32, 16, 64]")  # as a recording has them
FORWARD = OperatorCall("aten::_lstm_mps", ("float32[32, 16, 32]", *STATES, *WEIGHTS), MADE)
BACKWARD = OperatorCall(
    "aten::lstm_mps_backward",
    ("float32[2, 32, 64]", *KEPT, "float32[32, 16, 32]", MADE[0], *STATES, *WEIGHTS),
    (*WEIGHTS, *STATES, "float32[32, 16, 32]"),
)


def products(call: OperatorCall) -> dict[tuple[int, int, int], int]:
    return dict(Counter((w.m, w.n, w.k) for w in works_of(call) if w.kind == "gemm"))


def test_layers_take_all_steps_at_once_and_their_state_step_by_step() -> None:
    assert products(FORWARD) == {(512, 256, 32): 1, (512, 256, 64): 1, (32, 256, 64): 2 * 16}


def test_the_gradient_has_two_products_for_each() -> None:
    assert products(BACKWARD) == {
        (512, 32, 256): 1, (256, 32, 512): 1, (512, 64, 256): 1, (256, 64, 512): 1,
        (32, 64, 256): 2 * 16, (256, 64, 32): 2 * 16,
    }  # fmt: skip


def test_an_lstm_has_a_time_and_its_gradient_takes_longer() -> None:
    mac = parse_mac("M2 Pro 16GB")
    forward, backward = (predict_operator(call, mac, torch="2.10").device for call in (FORWARD, BACKWARD))
    assert 1e-4 < forward < backward < 2e-3


@pytest.mark.parametrize("call", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_tensors_that_are_none_of_an_lstm_are_named(call: OperatorCall) -> None:
    wrong = OperatorCall(call.operator, ("float32[4]",), ("float32[4]",))
    with pytest.raises(CostError, match=r"does not take these tensors: float32\[4\]"):
        predict_operator(wrong, parse_mac("M2 Pro 16GB"), torch="2.10")
