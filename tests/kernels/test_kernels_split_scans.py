"""Launches of sums and products of which a group of threads takes several rows, or only a part of one."""

from __future__ import annotations

import torch

from described import declines, describe, launch_of


def test_many_short_rows() -> None:
    """As many rows a group as fit into 2048 numbers."""
    launch = launch_of(describe("cumsum", self=torch.ones(4096, 17), dim=1))
    assert (launch.kernel, launch.buffers[2:]) == ("cumsum_tiny_innermost_float", (17, 4096, 120))
    assert (launch.threads, launch.group) == ((256 * 35,), (256,))
    assert launch_of(describe("cumsum", self=torch.ones(4095, 17), dim=1)).kernel == "cumsum_innermost_float"


def test_transposed() -> None:
    """Read where it lies, from 256 columns on."""
    launch = launch_of(describe("cumsum", self=torch.ones(70, 300).t(), dim=1))
    assert (launch.kernel, launch.buffers[2:]) == ("cumsum_innermost_transposed_float", (70, 300, 10))
    assert (launch.threads, launch.group) == ((256, 10, 1), (256, 1, 1))


def test_rows_and_columns_that_several_groups_share() -> None:
    """Long ones, where few give each group work of its own; how they are shared shows in the last digit alone."""
    assert declines("cumsum", self=torch.ones(1024, 1 << 16, device="meta"), dim=1)
    assert describe("cumsum", self=torch.ones(1, (1 << 16) - 1), dim=1) is not None
    assert declines("cumprod", self=torch.ones(64, 1024, 5, device="meta"), dim=1)
    launch = launch_of(describe("cumsum", self=torch.ones(65, 1024, 5), dim=1))
    assert launch.kernel == "cumsum_outer_float"
