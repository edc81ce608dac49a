"""Scripted and traced functions on mps: TorchScript's interpreter hands lists over in its own types."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from device.compare import text_of
from traced_operators import outcomes

pytestmark = [
    pytest.mark.usefixtures("mps_device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"),
]


def test_assignment_through_a_mask_in_a_scripted_function() -> None:
    """`x[x < 50] = 1.0` in a scripted function writes where the mask is true."""

    @torch.jit.script
    def limit(x: torch.Tensor) -> torch.Tensor:
        x[x < 3] = 1.0
        return x

    assert [1.0, 1.0, 1.0, 3.0] == limit(torch.arange(4.0, device="mps")).tolist()


def test_assignment_through_an_index_in_a_scripted_function() -> None:
    """`x[i] = 1` in a scripted function writes at the index, in one dimension and with a full slice before it."""

    @torch.jit.script
    def put(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x[i] = 1
        x[:, i] = 2
        return x

    x, i = torch.zeros(2, 2, device="mps"), torch.tensor([1], device="mps")
    assert [[0.0, 2.0], [1.0, 2.0]] == put(x, i).tolist()


def test_gradients_of_a_traced_index() -> None:
    """The gradient of a traced index is that of the index."""

    def take(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i, :, i]

    x = torch.arange(8.0, device="mps").view(2, 2, 2).requires_grad_()
    i = torch.tensor([0, 0, 1], device="mps")
    traced = torch.jit.trace(take, (x, i))
    traced(x, i).sum().backward()
    grad, x.grad = x.grad, None
    take(x, i).sum().backward()
    assert grad is not None and x.grad is not None
    assert grad.tolist() == x.grad.tolist()


TRACED = (
    "add",
    "broadcast_tensors",
    "cat",
    "einsum",
    "index_put",
    "linalg.multi_dot",
    "linalg.svd",
    "matmul",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
    "nn.functional.layer_norm",
    "nn.functional.linear",
    "nn.functional.scaled_dot_product_attention",
    "softmax",
    "unbind",
    "var_mean",
)
"""Each way to a kernel has one here; `make stress` goes through all operators."""


@pytest.mark.filterwarnings("ignore")
def test_a_trace_computes_on_the_input_it_is_given() -> None:
    """An operator traced with one input gives for another what it gives outside of a trace, on the device."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, set[str]] = {}
    for op in op_db:
        if op.full_name in TRACED:
            found.setdefault(op.full_name, set()).update(outcomes(op, "mps:0", 2))
    assert found == {name: {"same"} for name in TRACED}


def test_a_traced_convolution_has_no_constants() -> None:
    """The graph names the input and the parameters, as on a Mac, and a traced gradient arrives at them."""
    layer = nn.Conv2d(1, 2, 3).to("mps")
    first, second = torch.ones(1, 1, 5, 5, device="mps"), torch.rand(1, 1, 5, 5, device="mps")
    made = torch.jit.trace(layer, first)
    graph = made.inlined_graph
    assert "Tensor" not in {node.output().type().kind() for node in graph.findAllNodes("prim::Constant")}
    assert len(graph.findAllNodes("aten::_convolution")) == 1
    made(second).sum().backward()
    grad, layer.weight.grad = layer.weight.grad, None
    layer(second).sum().backward()
    assert grad is not None and layer.weight.grad is not None
    assert grad.tolist() == layer.weight.grad.tolist()
    wrong = second.half()
    assert text_of(RuntimeError, lambda: made(wrong)).splitlines()[-1] == (
        "RuntimeError: Input type (MPSHalfType) and weight type (MPSFloatType) should be the same"
    )
