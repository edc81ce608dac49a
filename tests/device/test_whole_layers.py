"""Layers that are one operator on a Mac and several on a CPU: LSTM and max pooling, forward, backward and recorded."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import anymps
from device.compare import same, same_gradients, same_module, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

POOLED_TWICE = (
    "max_pool2d with `return_indices=False` is not infinitely differentiable. If you want to calculate higher order "
    "derivatives, e.g. second order, set `return_indices=True`."
)


def recorded(model: nn.Module, x: torch.Tensor) -> Counter[str]:
    """Operators of one call and its backward."""
    model(x)  # what happens once
    with anymps.record() as capture:
        out = model(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    return Counter({use.name: use.count for use in capture.recording.operators()})


def test_an_lstm_is_one_operator_forward_and_one_backward() -> None:
    """Two layers in two directions over 16 steps are `_lstm_mps` and `lstm_mps_backward` on the tape."""
    model = nn.LSTM(4, 5, num_layers=2, bidirectional=True).to("mps")
    found = recorded(model, values(16, 2, 4).to("mps"))
    assert 1 == found["aten::_lstm_mps"]
    assert 1 == found["aten::lstm_mps_backward"]
    assert 10 > sum(found.values())


@pytest.mark.usefixtures("virtual_device")
def test_an_lstm_needs_both_its_states() -> None:
    """The operator itself, without torch.nn before it, refuses other lists; a Mac reads past their end."""
    x, weights = values(3, 2, 4).to("mps"), [values(20, 4).to("mps"), values(20, 5).to("mps")]
    for states in ([], [values(1, 2, 5).to("mps")]):
        arguments = (x, states, weights, False, 1, 0.0, False, False, False)
        assert "lstm expects two hidden states" == text_of(RuntimeError, torch.ops.aten._lstm_mps, *arguments)


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_gru_and_rnn_are_made_of_others(kind: type[nn.RNNBase]) -> None:
    """Only LSTM has kernels of its own in the list of MPS kernels; a GRU and an RNN run step by step on a Mac too."""
    found = recorded(kind(4, 5).to("mps"), values(8, 2, 4).to("mps"))
    assert 8 <= found["aten::linear"]


def test_max_pooling_is_one_operator_forward_and_one_backward() -> None:
    """Without indices max pooling is `max_pool2d`; with them it is `max_pool2d_with_indices`."""
    x = values(1, 1, 4, 4).to("mps").requires_grad_()
    found = recorded(nn.MaxPool2d(2), x)
    assert 1 == found["aten::max_pool2d"]
    assert 1 == found["aten::max_pool2d_backward"]
    found = recorded(nn.MaxPool2d(2, return_indices=True), x)
    assert 1 == found["aten::max_pool2d_with_indices"]
    assert 1 == found["aten::max_pool2d_with_indices_backward"]


def saved(out: torch.Tensor) -> list[tuple[int, ...]]:
    """The shapes of what a result's autograd node keeps."""
    node: Any = out.grad_fn
    names = [name for name in dir(node) if name.startswith("_saved_")]
    return sorted(
        tuple(tensor.shape)
        for name in names
        for tensor in (lambda value: value if isinstance(value, (tuple, list)) else [value])(getattr(node, name))
        if isinstance(tensor, torch.Tensor)
    )


def test_max_pooling_keeps_its_input_and_no_indices() -> None:
    """The backward on a Mac looks for the maxima again."""
    x = values(1, 1, 4, 4).to("mps").requires_grad_()
    assert [(1, 1, 4, 4)] == saved(F.max_pool2d(x, 2))


def test_an_lstm_keeps_gates_cells_and_the_outputs_between_its_layers() -> None:
    """Sizes as a Mac has them: four gates a step, a cell a step, and each layer's output but the last one's."""
    model = nn.LSTM(3, 5, num_layers=3).to("mps")
    out, _ = model(values(7, 2, 3).to("mps"))
    shapes = saved(out)
    assert (3, 7, 2, 20) in shapes
    assert (3, 7, 2, 5) in shapes
    assert (2, 7, 2, 5) in shapes
    assert (7, 2, 3) in shapes


def test_higher_derivatives_are_refused() -> None:
    """Neither of the two kernels has a derivative of its backward."""
    x = values(1, 1, 4, 4).to("mps").requires_grad_()
    (first,) = torch.autograd.grad(F.max_pool2d(x, 2).pow(2).sum(), x, create_graph=True)
    assert POOLED_TWICE == text_of(RuntimeError, first.sum().backward)
    model, steps = nn.LSTM(3, 5).to("mps"), values(7, 2, 3).to("mps").requires_grad_()
    (first,) = torch.autograd.grad(model(steps)[0].pow(2).sum(), steps, create_graph=True)
    assert "derivative for lstm_mps_backward is not implemented" == text_of(RuntimeError, first.sum().backward)


def test_max_pooling_in_other_types_and_layouts() -> None:
    """bool, integers, halves and channels last."""
    for dtype in (torch.bool, torch.int32, torch.float16, torch.bfloat16):
        x = values(1, 2, 4, 4).mul(3).to(dtype)
        expected = F.max_pool2d(x.float(), 2).to(dtype)
        assert torch.equal(expected, F.max_pool2d(x.to("mps"), 2).cpu())
    same(lambda x: F.max_pool2d(x, 2), values(1, 2, 4, 4).to(memory_format=torch.channels_last))
    assert "pad should be at most half of effective kernel size" in text_of(
        RuntimeError, F.max_pool2d, values(1, 1, 4, 4).to("mps"), 2, padding=2
    )


@pytest.mark.parametrize("use", ["output", "last state", "last cell"])
def test_an_lstm_of_which_only_a_part_is_used(use: str) -> None:
    """A gradient from one of the three results alone."""
    torch.manual_seed(0)

    def part(module: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
        out, (last, cell) = module(x)
        return {"output": out, "last state": last, "last cell": cell}[use]

    same_gradients(part, nn.LSTM(3, 4, num_layers=2, bidirectional=True), values(5, 2, 3))


def test_a_gradient_goes_through_the_dropout_between_layers() -> None:
    """What was dropped gets no gradient, what was kept a scaled one: the numeric derivative agrees."""
    model = nn.LSTM(2, 3, num_layers=2, dropout=0.5).to("mps")
    x = values(4, 1, 2).to("mps").requires_grad_()

    def loss(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return model(x)[0].sum()

    (gradient,) = torch.autograd.grad(loss(x), x)
    for place in ((0, 0, 0), (1, 0, 1), (3, 0, 0)):
        step = torch.zeros_like(x)
        step[place] = 1e-2
        with torch.no_grad():
            slope = (loss(x + step) - loss(x - step)) / 2e-2
        torch.testing.assert_close(slope, gradient[place], rtol=2e-2, atol=1e-3)


def test_all_is_dropped() -> None:
    """A dropout of 1 leaves zeros between the layers, and numbers everywhere."""
    model = nn.LSTM(2, 3, num_layers=2, dropout=1.0).to("mps")
    x = values(4, 1, 2).to("mps").requires_grad_()
    out, _ = model(x)
    out.sum().backward()
    assert x.grad is not None
    assert 0.0 == x.grad.abs().max().item()
    assert out.isfinite().all()


def test_half_precision_and_empty_batches() -> None:
    """float16 and bfloat16 as on the CPU, and a batch of none."""
    torch.manual_seed(0)
    same_module(nn.LSTM(3, 4), values(5, 0, 3))
    for dtype in (torch.float16, torch.bfloat16):
        model = nn.LSTM(3, 4).to(dtype)
        x = values(5, 2, 3).to(dtype)
        expected = model(x)[0]
        torch.testing.assert_close(model.to("mps")(x.to("mps"))[0].cpu(), expected, rtol=2e-2, atol=2e-2)


def test_lists_that_do_not_fit_are_refused() -> None:
    """Where a Mac's graph would abort, torch's texts for other devices are raised."""
    x, state = values(5, 2, 3).to("mps"), [torch.zeros(1, 2, 4, device="mps")] * 2
    weights = [parameter.detach() for parameter in nn.LSTM(3, 4).to("mps").parameters()]
    call = torch._VF.lstm
    rest = (True, 1, 0.0, False, False, False)
    assert "got an incorrect number of RNN parameters" == text_of(RuntimeError, call, x, state, weights[:3], *rest)
    halves = [weight.half() for weight in weights]
    said = "Input and parameter tensors are not the same dtype, found input tensor with {} and parameter tensor with {}"
    assert said.format("Float", "Half") == text_of(RuntimeError, call, x, state, halves, *rest)
    assert "Expected sequence length to be larger than 0 in RNN" == text_of(
        RuntimeError, call, x[:0], state, weights, *rest
    )
