"""Dtypes that MPS refuses and the CPU computes, and the other way round: texts, results, in-place and `out=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from anymps.rules import (
    REFUSED_DTYPES,
    SCALAR_TYPES,
    dtype_table,
    in_force,
    installed_torch,
    refused_dtype,
    widened_dtypes,
)


def _complex(device: torch.device) -> torch.Tensor:
    return torch.eye(2, dtype=torch.complex64, device=device)


REFUSALS: dict[str, tuple[Callable[[torch.device], Any], str]] = {
    "convolution of integers": (
        lambda d: F.conv1d(torch.ones(1, 1, 3, device=d).long(), torch.ones(1, 1, 1, device=d).long()),
        "Convolution is supported only for Floating types",
    ),
    "linear of integers": (
        lambda d: F.linear(torch.ones(2, 2, device=d).int(), torch.ones(2, 2, device=d).int()),
        "MPS device does not support linear for non-float inputs",
    ),
    "complex inverse": (
        lambda d: torch.linalg.inv(_complex(d)),
        "linalg_inv: not supported for complex types yet!",
    ),
    "complex determinant": (
        lambda d: torch.linalg.det(_complex(d)),
        "linalg.lu_factor(): MPS doesn't support complex types.",
    ),
    "complex qr": (lambda d: torch.linalg.qr(_complex(d)), "linalg_qr: MPS currently supports float32 only"),
    "complex qr, later": (
        lambda d: torch.linalg.qr(_complex(d)),
        "Failed to create function state object for: geqrf_float2",
    ),
    "complex solve, later": (
        lambda d: torch.linalg.solve(_complex(d), _complex(d)),
        "linalg.lu_factor(): MPS doesn't support complex types.",
    ),
    "relu of bools": (
        lambda d: torch.relu(torch.ones(2, dtype=torch.bool, device=d)),
        "Failed to create function state object for: relu_dense_bool_bool",
    ),
    "logspace of integers": (
        lambda d: torch.logspace(0, 2, 3, dtype=torch.int32, device=d),
        "logspace is not implemented for integral dtypes on MPS",
    ),
    "index_reduce of int64": (
        lambda d: torch.zeros(3, dtype=torch.int64, device=d).index_reduce(
            0, torch.tensor([0], device=d), torch.tensor([4], device=d), "amax"
        ),
        "index_reduce for MPS does not support torch.long dtype",
    ),
    "in place": (
        lambda d: _complex(d).renorm_(2, 0, 1.0),
        "Failed to create function state object for: renorm_float2",
    ),
    "adaptive pooling that does not divide": (
        lambda d: F.adaptive_avg_pool2d(torch.ones(1, 1, 5, 5, device=d), 3),
        "Adaptive pool MPS: input sizes must be divisible by output sizes. Non-divisible input sizes are not "
        "implemented on MPS device yet. For now, you can manually transfer tensor to cpu in this case. Please refer to "
        "[this issue](https://github.com/pytorch/pytorch/issues/96056)",
    ),
    "half 3D transposed convolution": (
        lambda d: F.conv_transpose3d(
            torch.ones(1, 1, 2, 2, 2, device=d).half(), torch.ones(1, 1, 1, 1, 1, device=d).half()
        ),
        "ConvTranspose 3D with BF16 or FP16 types is not supported on MPS",
    ),
    "complex factor of addmm": (
        lambda d: torch.addmm(_complex(d), _complex(d), _complex(d), alpha=1j),
        "value cannot be converted to type double without overflow",
    ),
    "complex factor of addr": (
        lambda d: torch.addr(_complex(d), _complex(d)[0], _complex(d)[1], beta=1j),
        "value cannot be converted to type double without overflow",
    ),
    "negative arange of uint8": (
        lambda d: torch.arange(-8.5, -4.0, dtype=torch.uint8, device=d),
        "value cannot be converted to type uint8_t without overflow",
    ),
    "product scatter of int64": (
        lambda d: torch.ones(2, dtype=torch.int64, device=d).scatter_reduce(
            0, torch.tensor([0], device=d), torch.tensor([3], device=d), "prod"
        ),
        "Failed to create function state object for: scatter_prod_dense_long_long",
    ),
    "largest scatter of int64": (
        lambda d: torch.ones(2, dtype=torch.int64, device=d).scatter_reduce(
            0, torch.tensor([0], device=d), torch.tensor([3], device=d), "amax"
        ),
        "not supported for torch.int64",
    ),
    "complex logcumsumexp, last dimension": (
        lambda d: torch.logcumsumexp(_complex(d), -1),
        "Failed to create function state object for: logcumsumexp_innermost_float2",
    ),
    "complex logcumsumexp, other dimension": (
        lambda d: torch.logcumsumexp(_complex(d), 0),
        "Failed to create function state object for: logcumsumexp_outer_float2",
    ),
    "complex istft": (
        lambda d: torch.istft(
            torch.ones(6, 3, dtype=torch.complex64, device=d),
            6,
            window=torch.ones(6, dtype=torch.complex64, device=d),
            onesided=False,
            return_complex=True,
        ),
        "Failed to create function state object for: unfold_backward_float2",
    ),
    "histc of float16": (
        lambda d: torch.histc(torch.ones(2, dtype=torch.float16, device=d)),
        "\"histogram_mps\" not implemented for 'Half'",
    ),
    "histc of integers": (
        lambda d: torch.histc(torch.ones(2, dtype=torch.int32, device=d)),
        "\"histogram_mps\" not implemented for 'Int'",
    ),
}


RELEASES = {
    "complex determinant": ((2, 11), (2, 14)),
    "complex qr": ((2, 12), (2, 13)),
    "complex qr, later": ((2, 14), (2, 15)),
    "complex solve, later": ((2, 14), (2, 14)),
    "relu of bools": ((2, 15), (2, 15)),
    "logspace of integers": ((2, 15), (2, 15)),
    "complex factor of addmm": ((2, 11), (2, 14)),
    "negative arange of uint8": ((2, 11), (2, 13)),
    "index_reduce of int64": ((2, 12), (2, 15)),
    "product scatter of int64": ((2, 13), (2, 15)),
    "largest scatter of int64": ((2, 11), (2, 12)),
    "complex logcumsumexp, last dimension": ((2, 11), (2, 11)),
    "complex logcumsumexp, other dimension": ((2, 11), (2, 11)),
    "complex istft": ((2, 11), (2, 11)),
    "histc of float16": ((2, 11), (2, 11)),
    "histc of integers": ((2, 11), (2, 12)),
}
"""The first and last release whose macOS wheel has the text or lacks the kernel, where that is not every release."""


def _said(call: Callable[[torch.device], object], device: torch.device) -> str:
    """The words in which a call is refused, nothing if it runs."""
    try:
        call(device)
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_have_the_backend_s_text(case: str, mps_device: torch.device) -> None:
    """What the CPU computes and MPS refuses raises RuntimeError with MPS's whole text, in the releases that have it."""
    since, until = RELEASES.get(case, ((2, 11), (2, 15)))
    call, text = REFUSALS[case]
    if not since <= installed_torch().version.release <= until:
        assert text != _said(call, mps_device)
        return
    with pytest.raises(RuntimeError) as caught:
        call(mps_device)
    assert RuntimeError is type(caught.value)
    assert text == str(caught.value)


def test_bools_that_the_cpu_lacks(mps_device: torch.device) -> None:
    """Max pooling of bools gives bools and int64 indices; the trace of bools is an int64 sum."""
    values, indices = F.max_pool2d(torch.ones(1, 4, 4, dtype=torch.bool, device=mps_device), 2, return_indices=True)
    assert (torch.bool, torch.int64) == (values.dtype, indices.dtype)
    assert [[0, 2], [8, 10]] == indices[0].tolist()
    trace = torch.trace(torch.ones(3, 3, dtype=torch.bool, device=mps_device))
    assert (torch.int64, 3) == (trace.dtype, trace.item())


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_widened_calls_write_where_they_should(mps_device: torch.device) -> None:
    """In-place and `out=` variants of a widened call write into the given tensor, and resize an empty one."""
    x = torch.tensor([1, 2, 3], device=mps_device)
    assert x is x.lerp_(torch.tensor([5, 6, 7], device=mps_device), 0.5)
    assert [3, 4, 5] == x.tolist()
    out = torch.empty(0, dtype=torch.int32, device=mps_device)
    assert out is torch.ops.aten.silu.out(torch.tensor([1, 20], dtype=torch.int32, device=mps_device), out=out)
    assert [0, 19] == out.tolist()
    polar = torch.polar(torch.ones(2, device=mps_device).half(), torch.zeros(2, device=mps_device).half())
    assert torch.complex32 == polar.dtype


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64], ids=str)
def test_integers_divided_by_zero_raise_nothing(dtype: torch.dtype, mps_device: torch.device) -> None:
    """Metal leaves the value open, and the other elements are right; dtype, in-place and `out=` as ever."""
    x = torch.tensor([7, 8, 9], device=mps_device).to(dtype)
    by = torch.tensor([2, 0, 4], device=mps_device).to(dtype)
    quotients = [x // by, torch.div(x, by, rounding_mode="trunc"), torch.div(x, by, rounding_mode="floor")]
    assert [(dtype, [3, 2])] * 3 == [(found.dtype, found[::2].tolist()) for found in quotients]
    rests = [x % by, torch.fmod(x, by)]
    assert [(dtype, [1, 1])] * 2 == [(found.dtype, found[::2].tolist()) for found in rests]
    assert dtype == (x % 0).dtype == (x // 0).dtype
    assert dtype == torch.remainder(5, by).dtype
    assert by.clone().remainder_(by)[0].item() == 0
    out = torch.empty(3, dtype=dtype, device=mps_device)
    assert out is torch.fmod(x, by, out=out)
    assert float("inf") == (x / by)[1].item()


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_the_transform_of_halves(mps_device: torch.device) -> None:
    """A short-time Fourier transform of float16 is complex32; MKL, which the CPU asks, has no such type."""
    x, window = torch.ones(20, device=mps_device).half(), torch.ones(8, device=mps_device).half()
    found = torch.stft(x, 8, window=window, return_complex=True)
    assert (torch.complex32, 8) == (found.dtype, torch.view_as_real(found)[0, 0, 0].item())


def test_dtypes_that_both_lack_raise(mps_device: torch.device) -> None:
    """A dtype that neither MPS nor the CPU has is refused, never widened."""
    with pytest.raises(NotImplementedError):
        F.gelu(torch.ones(2, dtype=torch.int32, device=mps_device))


def test_dtypes_that_the_cpu_has_after_all_are_not_widened(mps_device: torch.device) -> None:
    """`pow` of a bool tensor and a number has a CPU kernel: its result is promoted, not cast back to bool."""
    result = torch.pow(torch.tensor([True, False], device=mps_device), 2)
    assert (torch.int64, [1, 0]) == (result.dtype, result.tolist())


def test_the_table_covers_every_overload() -> None:
    """A base name stands for its functional, in-place and `out=` overloads; rows carry numbers and whole texts."""
    rows = {row[0]: row for row in dtype_table(installed_torch().version)}
    assert {"aten::renorm", "aten::renorm_", "aten::renorm.out"} <= rows.keys()
    _, refused, _, _ = rows["aten::renorm"]
    assert ((SCALAR_TYPES["complex64"], 0, "Failed to create function state object for: renorm_float2"),) == refused
    _, _, widened, keeps_wide = rows["aten::silu"]
    assert sum(1 << SCALAR_TYPES[dtype] for dtype in widened_dtypes("silu", torch.__version__)) == widened
    assert not keeps_wide
    assert rows["aten::trace"][3]


def test_rows_hold_for_their_releases_alone() -> None:
    """A row with a range is not used outside it."""
    text = refused_dtype("linalg_qr", "complex64", "2.13.0")
    assert text is not None
    assert "linalg_qr: MPS currently supports float32 only" == text.text
    later = refused_dtype("linalg_qr", "complex64", "2.14.0")
    assert later is not None
    assert "Failed to create function state object for: geqrf_float2" == later.text
    assert refused_dtype("linalg_qr", "float16", "2.14.0") is None
    assert refused_dtype("linalg_qr", "float32", "2.13.0") is None
    assert ("bool",) == widened_dtypes("ceil", "2.14.0")
    assert () == widened_dtypes("ceil", "2.15.0")
    assert ("bool", "float16", "bfloat16") == widened_dtypes("trace", "2.12.0")
    assert ("bool",) == widened_dtypes("trace", "2.13.0")


def test_no_dtype_is_refused_and_widened() -> None:
    """No operator refuses a dtype that it also widens in the same release."""
    for release in range(11, 16):
        for row in in_force(REFUSED_DTYPES, (2, release)):
            for operator in row.operators:
                assert not set(row.dtypes).intersection(widened_dtypes(operator, f"2.{release}.0"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_grid_sample_in_half_precision_rounds_once(dtype: torch.dtype) -> None:
    """The kernels of the macOS wheels widen what they read and narrow what they write; the CPU's round on the way."""
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(1, 2, 6, 7, generator=generator).to(dtype)
    grid = (torch.rand(1, 5, 5, 2, generator=generator) * 2 - 1).to(dtype)
    sampled = F.grid_sample(image.to("mps"), grid.to("mps"), "bicubic", align_corners=False)
    wide = F.grid_sample(image.float(), grid.float(), "bicubic", align_corners=False)
    assert torch.equal(sampled.cpu(), wide.to(dtype))
