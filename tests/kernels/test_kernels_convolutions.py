"""Launches of convolutions that torch 2.15 keeps from other libraries, and what it leaves to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.kernels.launches import Work
from described import declines, describe, launch_of

LATER = (2, 15)


def _convolution(x: torch.Tensor, weight: torch.Tensor, groups: int = 1, **more: Any) -> dict[str, Any]:
    given = {"stride": [1], "padding": [0], "dilation": [1], **more}
    return {"input": x, "weight": weight, "bias": None, "transposed": False, "groups": groups, **given}


def _convolved(x: torch.Tensor, weight: torch.Tensor, groups: int = 1, **more: Any) -> Work:
    return describe("convolution", **_convolution(x, weight, groups, **more))


def _named(words: str, *values: int) -> dict[str, int]:
    """The fields of a struct."""
    return dict(zip(words.split(), values, strict=True))


@pytest.mark.parametrize(("last", "kernel"), [(False, "ncl"), (True, "nlc")])
def test_channels_alone(last: bool, kernel: str) -> None:
    """A thread has eight neighbours; the result lies as what it is made of."""
    x = torch.zeros(2, 30, 6).mT if last else torch.zeros(2, 6, 30)
    work = _convolved(x, torch.zeros(12, 1, 5), groups=6, padding=[2])
    launch = launch_of(work)
    assert (launch.kernel, launch.threads) == (f"conv1d_depthwise_{kernel}_float", (4, 12, 2))
    assert launch.buffers[0].is_contiguous()
    assert work.results[0].is_contiguous() != last
    params = launch.buffers[3]
    sizes = _named("N C_in C_out H W outH outW", 2, 6, 12, 1, 30, 1, 30)
    steps = _named("kH kW sH sW padH padW dH dW", 1, 5, 1, 1, 0, 2, 1, 1)
    assert params == sizes | steps | _named("C_in_per_group C_out_per_group has_bias", 1, 2, False)


@pytest.mark.parametrize(
    ("shape", "weight", "groups", "kernel"),
    [
        ((2, 6, 90), (8, 3, 5), 2, "conv3d_simd_float_64_64_2_2"),
        ((2, 6, 40), (8, 3, 5), 2, "conv3d_simd_float_32_64_1_2"),
        ((2, 4, 5, 6, 20), (6, 2, 3, 2, 3), 2, "conv3d_simd_float_64_64_2_2"),
        ((1, 1, 90), (70, 1, 3), 1, "conv3d_simd_float_64_64_2_2"),
    ],
)
def test_tiles(shape: tuple[int, ...], weight: tuple[int, ...], groups: int, kernel: str) -> None:
    """Of small planes half as many rows; lines are volumes of one layer and one row."""
    dims = len(shape) - 2
    given = {"stride": [1] * dims, "padding": [0] * dims, "dilation": [1] * dims}
    launch = launch_of(_convolved(torch.zeros(shape), torch.zeros(weight), groups, **given))
    assert launch.kernel == kernel
    assert launch.buffers[0].shape[-1] == shape[1]
    assert launch.buffers[1].shape[-2:] == (weight[1], weight[0])


def test_what_a_volume_tells_its_kernel() -> None:
    """Sizes and steps of each dimension; a group of threads for 64 of a layer's results and 64 channels of a group."""
    given = {"stride": [1, 2, 1], "padding": [1, 0, 2], "dilation": [1, 1, 2]}
    x, weight = torch.zeros(2, 4, 5, 6, 20), torch.arange(216.0).view(6, 2, 3, 2, 3)
    launch = launch_of(_convolved(x, weight, 2, **given))
    assert (launch.kernel, launch.threads, launch.group) == (
        "conv3d_simd_float_64_64_2_2",
        (256, 1, 10),
        (128, 1, 1),
    )
    plane = _named("N C_in C_out H W outH outW", 2, 4, 6, 6, 20, 3, 20)
    plane |= _named("kH kW sH sW padH padW dH dW", 2, 3, 2, 1, 0, 2, 1, 2)
    plane |= _named("C_in_per_group C_out_per_group has_bias", 2, 3, False)
    assert launch.buffers[3] == {"conv2d": plane} | _named("D outD kD sD padD dD out_ncdhw", 5, 5, 3, 1, 1, 1, True)
    assert launch.buffers[1].is_contiguous()
    assert launch.buffers[1][1, 0, 2, 1, 4] == weight[4, 1, 1, 0, 2]
    steps = launch_of(_convolved(x, weight, 2, stride=[3, 1, 1], padding=[1, 0, 0], dilation=[2, 1, 1])).buffers[3]
    assert (steps["sD"], steps["dD"], steps["padD"], steps["outD"]) == (3, 2, 1, 1)
    last = _convolved(x.to(memory_format=torch.channels_last_3d), weight, 2, **given)
    assert launch_of(last).buffers[3]["out_ncdhw"] is False
    assert last is not None
    assert last.results[0].is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize(
    ("shape", "weight", "more"),
    [
        ((1, 4, 8), (6, 4, 8), {}),
        ((1, 1100, 3), (6, 1100, 2), {}),
        ((1, 2, 300), (6, 2, 256), {}),
        ((1, 2, 3, 4, 5), (6, 2, 1, 1, 1), {}),
        ((1, 3, 8, 8, 8), (6, 3, 4, 4, 8), {"stride": [4, 4, 8]}),
        ((1, 160, 4, 4, 4), (6, 160, 3, 3, 3), {}),
    ],
)
def test_convolutions_that_are_products_of_matrices(
    shape: tuple[int, ...], weight: tuple[int, ...], more: dict[str, list[int]]
) -> None:
    """One result, few results of many numbers, single voxels, patches side by side; a long kernel along a line."""
    assert declines("convolution", **_convolution(torch.zeros(shape), torch.zeros(weight), **more))


def test_few_results_of_halves() -> None:
    """Only float32 is multiplied as matrices then."""
    x, weight = torch.zeros(1, 160, 4, 4, 4).half(), torch.zeros(6, 160, 3, 3, 3).half()
    given = {"stride": [1] * 3, "padding": [0] * 3, "dilation": [1] * 3}
    assert launch_of(_convolved(x, weight, **given)).kernel == "conv3d_simd_half_32_64_1_2"
