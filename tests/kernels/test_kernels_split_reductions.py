"""Which kernels of torch 2.15 reduce a tensor, in how many passes, and what they give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.kernels.launches import Launch
from described import describe
from kernel_files import needs_kernels


def launches(operator: str, x: torch.Tensor, **given: Any) -> tuple[Launch, ...]:
    """What a call launches."""
    return describe(operator, release=(2, 15), self=x, **given).launches


def names(operator: str, *shape: int, dim: Any, transposed: bool = False) -> list[str]:
    """The kernels of a call on a tensor of that shape, without the prefix."""
    x = torch.ones(shape)
    found = launches(operator, x.mT if transposed else x, dim=dim, keepdim=False, dtype=None)
    return [one.kernel.partition("_reduction")[2] for one in found]


@pytest.mark.parametrize(
    ("shape", "dim", "expected"),
    [
        ((3, 5), [1], ["_innermost_float_float"]),
        ((3000, 70), [1], ["_innermost_chunk_float_float"]),
        ((2, 9000), [1], ["_innermost_chunk_float_float", "_innermost_float_float"]),
        ((3, 5), [0], ["_outer_float_float"]),
        ((20, 5000), [0], ["_outer_small_dim_float_float"]),
        ((8000, 40), [0], ["_outer_float_float", "_outer_float_float"]),
        ((70_000, 3), [0], ["_narrow_float_float", "_narrow_float_float"]),
        ((4, 20_000, 3), [1], ["_narrow_float_float"]),
        ((300, 300), [0, 1], ["_flat_float_float", "_float_float"]),
        ((30, 30), [0, 1], ["_float_float"]),
        ((4, 3, 5), [0, 2], ["_float_float"]),
        ((4, 3, 5), [0, 1], ["_outer_float_float"]),
    ],
)
def test_sums_are_chosen_by_shape(shape: tuple[int, ...], dim: list[int], expected: list[str]) -> None:
    """Rows, columns, few columns and whole tensors; in two passes where one has too few groups of threads."""
    assert names("sum", *shape, dim=dim) == expected


def test_what_lies_otherwise() -> None:
    """A transposed matrix is one of rows; a whole tensor with gaps is read in place."""
    assert names("sum", 3, 5, dim=[1], transposed=True) == ["_outer_float_float"]
    first, _ = launches("sum", torch.ones(300, 600)[:, :300], dim=[0, 1], keepdim=False, dtype=None)
    assert (first.kernel, first.buffers[2:]) == (
        "sum_reduction_flat_strided_float_float",
        ([300, 300, 1, 1], [1, 600, 0, 0]),
    )


def test_types_and_numbers() -> None:
    """Halves are summed as float32, a mean divides at the end, and a variance keeps three numbers of each segment."""
    first, second = launches("mean", torch.ones(300, 300).half(), dim=None, keepdim=False, dtype=None)
    assert (first.kernel, second.kernel) == ("sum_reduction_flat_half_float", "sum_reduction_float_half")
    assert second.buffers[2]["p"] == 90_000.0
    first, second = launches("var", torch.ones(2, 9000), dim=[1], correction=0, keepdim=False)
    assert (first.kernel, second.kernel) == (
        "var_reduction_innermost_chunk_float_float3",
        "var_reduction_innermost_float3_float",
    )
    assert (first.buffers[3], second.buffers[3]) == (0.0, 0.0)


def test_numbers_where_the_kernels_were_added(virtual_device: torch.device) -> None:
    """Of each way, beside the CPU's."""
    import anymps
    from anymps.kernels import Launcher

    needs_kernels("2.15.0")
    launcher = Launcher(anymps.metal_kernels("2.15.0"), (2, 15))
    for shape, dim in (((20, 5000), 0), ((5000, 10), 0), ((300, 300), None), ((3, 5), 0), ((130, 40), 1)):
        x = torch.arange(torch.Size(shape).numel()).view(shape) % 1013
        for lying in (x, x.t().contiguous().t(), torch.cat([x, x], 1)[:, : shape[1]]):
            dims = [] if dim is None else [dim]
            found = launcher("aten::sum.dim_IntList", [lying, dims, False, None], [])
            assert torch.equal(found[0], lying.sum(dims))
