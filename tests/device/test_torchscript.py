"""Scripted and traced functions on mps: TorchScript's interpreter hands lists over in its own types."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from device.compare import assert_same, text_of

pytestmark = [
    pytest.mark.usefixtures("mps_device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"),
]

LISTS = (
    "index_put", "cat", "stack", "hstack", "einsum", "meshgrid", "block_diag", "cartesian_prod", "split_with_sizes",
    "tensor_split", "unbind", "broadcast_tensors", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate",
    "linalg.multi_dot", "masked_fill", "roll", "nn.functional.interpolate",
)  # fmt: skip
"""Operators of torch's database that take or give lists."""


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


def test_reads_through_indices_in_a_scripted_function() -> None:
    """Indices, masks and None in a scripted function read what they read outside of it."""

    @torch.jit.script
    def take(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[:, i] + x[i][:, i] + x[x >= 0].view(2, 2)[:, i]

    x, i = torch.arange(4.0, device="mps").view(2, 2), torch.tensor([1, 0], device="mps")
    assert take.graph is not None
    assert (x[:, i] + x[i][:, i] + x[:, i]).tolist() == take(x, i).tolist()


def test_a_bad_index_in_a_scripted_function_is_refused_as_outside_of_it() -> None:
    """An index beyond a dimension of size 0 raises the same text under the interpreter."""

    @torch.jit.script
    def take(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i]

    empty, i = torch.empty(0, 3, device="mps"), torch.tensor([0], device="mps")
    with pytest.raises(RuntimeError, match="index is out of bounds for dimension with size 0"):
        take(empty, i)
    assert "index is out of bounds for dimension with size 0" == text_of(IndexError, lambda: empty[i])


def test_index_put_in_a_traced_function() -> None:
    """A traced `index_put` runs, and so does the check that torch makes of the trace."""

    def put(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.index_put((i,), torch.ones((), device=x.device))

    x, i = torch.zeros(4, device="mps"), torch.tensor([1, 2], device="mps")
    assert [0.0, 1.0, 1.0, 0.0] == torch.jit.trace(put, (x, i))(x, i).tolist()


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


def _traced(op: Any, sample: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """The operator as a function of the tensors of a sample, and these."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, args, kwargs = tree_unflatten(given, spec)
        return tuple(leaf for leaf in tree_leaves(op.op(first, *args, **kwargs)) if isinstance(leaf, torch.Tensor))

    return call, [leaves[place].detach() for place in places]


@pytest.mark.parametrize("name", LISTS)
def test_operators_with_lists_run_traced(name: str) -> None:
    """Torch's own samples of an operator give under the interpreter what they give without it."""
    from torch.testing._internal.common_methods_invocations import op_db

    compared = 0
    for op in (op for op in op_db if op.name == name):
        for sample in islice(op.sample_inputs("mps:0", torch.float32), 0, 8, 2):
            call, tensors = _traced(op, sample)
            try:
                expected = call(*(tensor.clone() for tensor in tensors))
            except (RuntimeError, NotImplementedError):
                continue  # mps lacks it
            function = torch.jit.trace(call, tuple(tensor.clone() for tensor in tensors), check_trace=False)
            found = function(*(tensor.clone() for tensor in tensors))
            for one, other in zip(expected, tree_leaves(found), strict=True):
                assert_same(other, one.cpu(), strides=False)
                compared += 1
    assert compared > 0
