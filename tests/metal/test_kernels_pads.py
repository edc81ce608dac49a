"""Launches of pads: a number, an edge repeated or mirrored, by the kernels of torch 2.15."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.described import describe, launch_of

LATER = (2, 15)


def _constant(x: torch.Tensor, pad: list[int], value: Any = 3) -> Any:
    return describe("constant_pad_nd", self=x, pad=pad, value=value, release=LATER)


def test_a_number_around_a_dense_tensor() -> None:
    """A thread has four numbers of a row; all sizes count from the innermost dimension."""
    work = _constant(torch.zeros(2, 3, 5, 7), [2, 1, 0, 4])
    launch = launch_of(work)
    assert work.results[0].shape == (2, 3, 9, 10)
    assert (launch.kernel, launch.threads, launch.group) == ("constant_pad_nd_dense_float", (3, 9, 6), (3, 9, 6))
    params = {"input_sizes": [7, 5, 1], "output_sizes": [10, 9, 1], "left_pad": [2, 0, 0]}
    assert launch.buffers[2:] == (params, 3.0)


def test_a_number_around_four_dimensions() -> None:
    """The dense kernel has three, the other takes its dimensions by the strides of the result."""
    launch = launch_of(_constant(torch.zeros(2, 3, 5, 7), [1, 0, 0, 0, 0, 0, 0, 1]))
    assert (launch.kernel, launch.threads, launch.group) == ("constant_pad_nd_float_u32", (2, 45), (2, 1))
    assert launch.buffers[2] == {
        "ndim": 4,
        "left_pad": [1, 0, 0, 0],
        "output_sizes": [8, 5, 3, 3],
        "output_strides": [1, 8, 40, 120],
        "input_sizes": [7, 5, 3, 2],
        "input_strides": [1, 7, 35, 105],
    }


def test_channels_that_come_last() -> None:
    """They do so in the result, too, whose innermost dimension they are."""
    x = torch.zeros(2, 3, 5, 7).to(memory_format=torch.channels_last)
    work = _constant(x, [1, 1])
    launch = launch_of(work)
    assert work.results[0].is_contiguous(memory_format=torch.channels_last)
    assert (launch.kernel, launch.threads) == ("constant_pad_nd_float_u32", (1, 90))
    assert launch.buffers[2]["left_pad"] == [0, 1, 0, 0]
    assert _constant(x[:, ::2], [1, 1]) is None


def test_pads_that_cut_off() -> None:
    """The kernel gets what is left; of a whole tensor that is a copy, of nothing a fill."""
    launch = launch_of(_constant(torch.zeros(4, 7), [-2, 1]))
    assert (launch.kernel, launch.buffers[0].shape) == ("constant_pad_nd_float_u32", (4, 5))
    assert _constant(torch.zeros(4, 7), [0, 0, -1, 0]) is None
    assert _constant(torch.zeros(4, 7), [-7, 1]) is None
    launch = launch_of(_constant(torch.zeros(4, 7), [-1, -1], 5.0))
    assert launch.buffers[3] == 0


def test_a_number_that_the_dtype_lacks() -> None:
    """It is the CPU's to refuse, or cut down as PyTorch does."""
    launch = launch_of(_constant(torch.zeros(4, 7, dtype=torch.int16), [1, 1], 2.5))
    assert (launch.kernel, launch.buffers[3]) == ("constant_pad_nd_dense_short", 2)
    assert _constant(torch.zeros(4, 7, dtype=torch.uint8), [1, 1], 300) is None


@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_an_edge_repeated_or_mirrored(kind: str) -> None:
    """Sizes and strides of the padded dimensions, the innermost first, then strides of channels and batch."""
    x = torch.zeros(2, 3, 5, 7).mT
    work = describe(f"{kind}_pad2d", self=x, padding=[2, 1, 0, 3], release=LATER)
    assert work is not None
    launch = launch_of(work)
    assert work.results[0].shape == (2, 3, 10, 8)
    assert (launch.kernel, launch.threads) == (f"{kind}_pad2d_forward_float_i32", (2, 10, 6))
    assert launch.buffers[2] == {
        "input_sizes": [5, 7, 1],
        "input_strides": [7, 1, 0, 35, 105],
        "output_sizes": [8, 10, 1],
        "output_strides": [1, 8, 0, 80, 240],
        "left_pad": [2, 0, 0],
        "channels": 3,
    }


def test_what_flows_back_through_an_edge() -> None:
    """A thread has four numbers of the gradient that goes out; without a batch its stride is zero."""
    x, gradient = torch.zeros(3, 4, 5, 6), torch.zeros(3, 5, 6, 9)
    work = describe(
        "reflection_pad3d_backward", grad_output=gradient, self=x, padding=[1, 2, 0, 1, 1, 0], release=LATER
    )
    launch = launch_of(work)
    assert (launch.kernel, launch.threads) == ("reflection_pad3d_backward_float_i32", (2, 5, 12))
    assert launch.buffers[2]["input_strides"] == [1, 6, 30, 120, 0]
    assert launch.buffers[2]["output_sizes"] == [9, 6, 5]
    given = {"grad_output": gradient[..., 1:], "self": x, "padding": [1, 2, 0, 1, 1, 0]}
    assert describe("reflection_pad3d_backward", release=LATER, **given) is None


def test_edges_that_the_cpu_refuses() -> None:
    """A mirror shows no more than there is; no pad takes a whole dimension away."""
    x = torch.zeros(3, 7)
    assert describe("reflection_pad1d", self=x, padding=[7, 0], release=LATER) is None
    assert describe("reflection_pad1d", self=x, padding=[6, 0], release=LATER) is not None
    assert describe("reflection_pad1d", self=x, padding=[-7, 0], release=LATER) is None
    assert describe("replication_pad2d", self=x, padding=[1, 1], release=LATER) is None
