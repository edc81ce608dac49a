"""Columns of windows and gradients of bags: names, arguments and grids, described without the kernels."""

from __future__ import annotations

from typing import Any

import torch

from described import declines, describe

WINDOWS = {"kernel_size": [3, 2], "dilation": [1, 1], "padding": [1, 0], "stride": [2, 1]}


def test_columns_as_an_image() -> None:
    """A thread for each pixel."""
    work = describe("col2im", self=torch.ones(2, 18, 35), output_size=[9, 8], **WINDOWS)
    (launch,) = work.launches
    assert work.results[0].shape == (2, 3, 9, 8)
    assert (launch.kernel, launch.threads, launch.group) == ("col2im_kernel_float_u32", (8, 9, 6), (8, 9, 1))
    assert launch.buffers[2:4] == (630, 3)
    assert launch.buffers[4:10] == ([9, 8], [3, 2], [1, 0], [2, 1], [1, 1], [5, 7])
    assert launch.buffers[10:] == (216, [35, 1])


def bags(**more: Any) -> dict[str, Any]:
    """The arguments of a gradient of four bags with seven indices."""
    return {
        "grad": torch.ones(4, 5),
        "indices": torch.tensor([0, 3, 3, 5, 1, 0, 2]),
        "offset2bag": torch.tensor([0, 0, 0, 2, 2, 3, 3]),
        "bag_size": torch.tensor([3, 0, 2, 2]),
        "maximum_indices": torch.zeros(4, 5, dtype=torch.int64),
        "num_weights": 6,
        "scale_grad_by_freq": False,
        "mode": 0,
        "per_sample_weights": None,
        "padding_idx": -1,
    } | more


def test_gradients_of_bags() -> None:
    """A thread for each number that is added; of the largest ones for each number of the gradient."""
    for mode, threads in ((0, 35), (1, 35), (2, 20)):
        work = describe("_embedding_bag_dense_backward", **bags(mode=mode))
        (launch,) = work.launches
        assert (launch.kernel, launch.threads) == ("embedding_bag_backward_float_long", (threads,))
        assert work.results[0].shape == (6, 5)
        assert launch.buffers[-1]["max_indices_strides"] == ((5, 1) if mode == 2 else (0, 0))
    given = {"weight": torch.ones(6, 5), "offsets": torch.tensor([0, 3, 3, 5]), "mode": 0, "padding_idx": -1}
    given |= {name: bags()[name] for name in ("grad", "indices", "offset2bag")}
    work = describe("_embedding_bag_per_sample_weights_backward", **given)
    assert work.results[0].shape == (7,)
    assert work.launches[0].kernel == "embedding_bag_per_sample_weights_backward_float_long"


def test_what_is_left_to_others() -> None:
    """Sizes of bags that the CPU did not count, other settings, windows that do not fit, a later release."""
    assert declines("_embedding_bag_dense_backward", **bags(bag_size=torch.zeros(4, dtype=torch.int64)))
    assert declines("_embedding_bag_dense_backward", **bags(offset2bag=torch.tensor([], dtype=torch.int64)))
    assert declines("_embedding_bag_dense_backward", **bags(scale_grad_by_freq=True))
    assert describe("_embedding_bag_backward", **bags(sparse=False)) is not None
    assert declines("_embedding_bag_backward", **bags(sparse=True))
    assert declines("col2im", self=torch.ones(2, 18, 34), output_size=[9, 8], **WINDOWS)
    assert declines("col2im", release=(2, 14), self=torch.ones(2, 18, 35), output_size=[9, 8], **WINDOWS)
