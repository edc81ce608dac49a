"""Which of PyTorch's own kernels computes a call: names, arguments and grids, described without the kernels."""

from __future__ import annotations

import struct

import pytest
import torch

from anymps.kernels import BufferArgument
from anymps.kernels._packing import pack
from described import declines, describe, launched

FOUR = torch.arange(4.0)


def test_one_tensor() -> None:
    """One element a thread where it is dense; else sizes and strides, innermost first, and a grid of two dimensions."""
    found = launched("exp", self=FOUR)
    out, launch = found
    assert (out.shape, out.dtype) == (FOUR.shape, torch.float32)
    assert (launch.kernel, launch.threads, launch.group) == ("exp_dense_scalar_float_float", (4,), None)
    assert launch.buffers[0] is out
    assert launch.buffers[1] is FOUR
    strided = torch.arange(12, dtype=torch.int16).view(3, 4)[:, :2]
    found = launched("exp", self=strided)
    out, launch = found
    assert out.dtype == torch.float32
    assert launch.kernel == "exp_strided_float_short"
    assert launch.buffers[2:] == ([2, 3], [2, 8], [4, 8], 2)
    assert (launch.threads, launch.group) == ((2, 3), (32, 1))


def test_one_tensor_and_a_number() -> None:
    """The number is the last argument, and its type ends the name; a struct is a dict."""
    found = launched("leaky_relu", self=FOUR.half(), negative_slope=0.1)
    assert found[1].kernel == "leaky_relu_dense_half_half_half"
    assert found[1].buffers[2:] == (0.1,)
    found = launched("elu", self=FOUR, alpha=1, scale=2, input_scale=3)
    assert found[1].kernel == "elu_dense_float_float_ELUParams_float"
    assert found[1].buffers[2:] == ({"alpha": 1, "scale": 2, "input_scale": 3},)


OTHERS = {
    "the same": (torch.ones(2, 3), "add_dense_float_float", ()),
    "another dtype": (torch.ones(2, 3, dtype=torch.int32), "add_dense_cast_float_float", ([4, 4, 6, 3],)),
    "a number": (torch.tensor(1.0), "add_dense_scalar_float_float", ()),
    "a row": (torch.ones(3), "add_dense_broadcast_float_float", (3,)),
    "a column": (torch.ones(2, 1), "add_strided_float_float", ([3, 2], [4, 12], [4, 12], [0, 4], [2, 0, 0])),
    "a column of another dtype": (
        torch.ones(2, 1, dtype=torch.int64),
        "add_strided_cast_float_float",
        ([3, 2], [4, 12], [4, 12], [0, 8], [2, 6, 4, 6]),
    ),
}


@pytest.mark.parametrize("which", OTHERS)
def test_two_tensors(which: str) -> None:
    """How the operands lie and whether their dtypes differ chooses the kernel."""
    other, kernel, further = OTHERS[which]
    found = launched("add", self=torch.ones(2, 3), other=other, alpha=1)
    out, launch = found
    assert (out.shape, launch.threads) == ((2, 3), (6,))
    assert launch.kernel == kernel
    assert launch.buffers[3:] == further


def test_results_of_two_tensors() -> None:
    """Comparisons give truth values, a true division of integers float32, a scaled sum takes its factor."""
    numbers = torch.arange(3)
    for operator, given, kernel in (
        ("lt", {}, "lt_dense_bool_long"),
        ("div", {}, "div_true_dense_float_long"),
        ("div", {"rounding_mode": "floor"}, "div_floor_dense_long_long"),
        ("add", {"alpha": 2}, "add_alpha_dense_long_long_long"),
    ):
        found = launched(operator, self=numbers, other=numbers + 1, **given)
        assert found[1].kernel == kernel


def test_a_number_of_the_cpu_is_read_as_the_release_does() -> None:
    """Up to torch 2.13 from the start of its storage, which is wrong for a view; from 2.14 on where it lies."""
    table = torch.tensor([10.0, 20.0, 30.0])
    for release, value in (((2, 13), 10.0), ((2, 14), 30.0)):
        found = launched("add", foreign={"other"}, release=release, self=FOUR, other=table[2], alpha=1)
        assert found[1].buffers[2].item() == value
    found = launched(
        "mul", foreign={"other"}, self=FOUR, other=table.double()[2]
    )  # made float32 first, a tensor of its own
    assert (found[1].buffers[2].item(), found[1].buffers[2].dtype) == (30.0, torch.float32)


def test_what_no_kernel_does() -> None:
    """A kernel that the release lacks, a result of another dtype than the kernel's, conjugates: left to others."""
    assert declines("exp", self=FOUR, kernels={"sin_dense_scalar_float_float"})
    assert declines("exp", self=FOUR, written=(FOUR.half(),))
    assert declines("add", self=FOUR.half(), other=FOUR, alpha=1, written=(FOUR.half(),))
    assert declines("mul", self=torch.ones(2, dtype=torch.complex64).conj(), other=torch.ones(2))


def test_empty_tensors_launch_nothing() -> None:
    """The result is there all the same."""
    work = describe("exp", self=torch.empty(0, 3))
    assert (work.results[0].shape, work.launches) == ((0, 3), ())


def test_a_norm_of_a_layer() -> None:
    """Four numbers a thread, whole SIMD groups a row; the largest group loops over longer ones."""
    weight = torch.ones(200)
    found = launched(
        "native_layer_norm", input=torch.ones(5, 200), normalized_shape=[200], weight=weight, bias=None, eps=1e-5
    )
    assert found[1].kernel == "layer_norm_single_row_float"
    assert found[1].buffers[4:] == (200, 1e-5, 1, 0, weight, None)
    assert (found[1].threads, found[1].group) == ((320,), (64,))
    long = torch.ones(2, 5000)
    found = launched("native_layer_norm", input=long, normalized_shape=[5000], weight=None, bias=None, eps=1e-5)
    assert (found[1].kernel, found[1].threads, found[1].group) == ("layer_norm_looped_float", (2048,), (1024,))
    later = {"layer_norm_looped_i32_float"}
    found = launched(
        "native_layer_norm", kernels=later, input=long, normalized_shape=[5000], weight=None, bias=None, eps=1e-5
    )
    assert found[1].kernel == "layer_norm_looped_i32_float"


def test_windows_of_an_adaptive_pool() -> None:
    """All of one size and equally far apart, as the host derives them: 5 to 3 is windows of 3, one apart."""
    found = launched("adaptive_max_pool2d", self=torch.ones(1, 2, 5, 8), output_size=[3, 4])
    out, launch = found
    params = launch.buffers[3]
    assert (out.shape, launch.kernel, launch.threads) == ((1, 2, 3, 4), "max_pool_float", (24,))
    assert (params["kernel_size"], params["stride"]) == ([3, 2], [1, 2])
    assert (params["input_strides"], params["output_sizes"]) == ([80, 40, 8, 1], [1, 2, 3, 4])
    assert "adaptive" not in params
    found = launched("adaptive_max_pool2d", release=(2, 15), self=torch.ones(1, 2, 5, 8), output_size=[3, 4])
    assert found[1].buffers[3]["adaptive"] is True  # uneven windows: the kernel finds where each begins and ends


def test_bags() -> None:
    """A thread for each number of the result; the last argument is the buffer of errors."""
    given = {
        "weight": torch.ones(5, 3),
        "indices": torch.tensor([0, 1, 4]),
        "offsets": torch.tensor([0, 2, 3]),
        "scale_grad_by_freq": False,
        "mode": 0,
        "include_last_offset": True,
        "padding_idx": -1,
    }
    found = launched("_embedding_bag", **given)
    out, launch = found
    assert (out.shape, launch.kernel, launch.threads, launch.errors) == ((2, 3), "embedding_bag_float_long", (6,), 9)
    params = launch.buffers[8]
    assert (params["num_bags"], params["num_indices"], params["num_weights"]) == (2, 3, 5)
    assert declines("_embedding_bag", **{**given, "scale_grad_by_freq": True})


def test_three_tensors() -> None:
    """Dense ones element by element; else sizes and strides of all; a cast tells of the result, too."""
    matrix, later = torch.ones(3, 4), {"value": 1, "release": (2, 15)}
    found = launched("addcmul", self=matrix, tensor1=torch.ones(4), tensor2=matrix, **later)
    assert (found[1].kernel, found[1].threads) == ("addcmul_strided_float_float_float", (4, 3, 1))
    assert found[1].buffers[4:] == (1, [4, 3], [4, 16], [4, 16], [4, 0], [4, 16], 2)
    found = launched("addcmul", self=matrix, tensor1=torch.ones(1, 4).half(), tensor2=matrix, **later)
    assert found[1].kernel == "addcmul_strided_cast_float_float"
    assert found[1].buffers[10:] == (2, [6, 5, 6, 6])
    for release, kernel in (((2, 13), "lerp_tensor_dense_float"), ((2, 15), "lerp_dense_float_float")):
        found = launched("lerp", release=release, self=matrix, end=matrix, weight=matrix)
        assert found[1].kernel == kernel
    found = launched("lerp", self=matrix, end=matrix, weight=0.5)
    assert found[1].kernel == "lerp_alpha_dense_float_float_float"


def test_three_tensors_that_are_left_to_others() -> None:
    """A tensor of the CPU, one of no dimension in another dtype, and a result of another shape."""
    given = {"self": torch.ones(3, 4), "tensor1": torch.ones(3, 4), "tensor2": torch.ones(()), "value": 1}
    assert describe("addcmul", **given) is not None
    assert declines("addcmul", foreign={"tensor2"}, **given)
    assert declines("addcmul", **{**given, "tensor2": torch.ones(()).half()})
    assert declines("addcmul", written=(torch.ones(4),), **given)
    assert declines("lerp", self=given["self"], end=given["self"], weight=given["self"].half())


@pytest.mark.parametrize(("given", "packed"), [(0.5, (0.5, 0.0)), (1 - 2j, (1.0, -2.0))])
def test_a_complex_number_is_a_pair(given: complex, packed: tuple[float, float]) -> None:
    """A kernel of complex numbers takes the real part, then the imaginary one."""
    argument = BufferArgument("alpha", "float2", 3, "constant", False, 8, None, ())
    assert struct.unpack("<2f", pack(argument, given)) == packed


def test_powers() -> None:
    """Some powers have kernels of their own; integers have one for squares alone, and take whole powers."""
    kernels = {power: launched("pow", self=FOUR, exponent=power)[1].kernel for power in (2, 0.5, -0.5, -1, 3, 2.5)}
    assert kernels == {
        2: "sqr_dense_scalar_float_float",
        0.5: "sqrt_dense_scalar_float_float",
        -0.5: "rsqrt_dense_scalar_float_float",
        -1: "reciprocal_dense_scalar_float_float",
        3: "pow_scalar_dense_float_float_float",
        2.5: "pow_scalar_dense_float_float_float",
    }
    for other, power in ((FOUR, 0), (FOUR, 1), (FOUR.int(), 2.5), (FOUR > 1, 3), (FOUR, 1j), (1, FOUR)):
        assert declines("pow", self=other, exponent=power)
    for other, kernel in ((FOUR, "pow_dense_float_float"), (2, "pow_dense_scalar_lhs_cast_float_float")):
        assert launched("pow", self=other, exponent=FOUR)[1].kernel == kernel


def test_gradients_of_elu() -> None:
    """Of its input or of its result."""
    given = {"grad_output": FOUR, "self_or_result": FOUR, "alpha": 1.3, "scale": 1, "input_scale": 0.9}
    found = launched("elu_backward", is_result=True, **given)
    assert found[1].kernel == "elu_backward_dense_float_float_ELUBackwardParams_float"
    assert found[1].buffers[3] == {"alpha": 1.3, "scale": 1, "input_scale": 0.9, "is_result": True}


def test_lerp_by_layout() -> None:
    """One weight for all, two and three dimensions, and more."""
    x = torch.ones(2, 3, 4)
    for operands, kernel in (
        ((x, x, torch.ones(())), "lerp_tensor_scalar_weight_float"),
        ((x[0], x[0, 0], x[0]), "lerp_tensor_strided_2d_float"),
        ((x, x[0], x), "lerp_tensor_strided_3d_float"),
        ((x[None], x[0], x), "lerp_tensor_strided_float"),
    ):
        found = launched("lerp", **dict(zip(("self", "end", "weight"), operands, strict=True)))
        assert found[1].kernel == kernel
    found = launched("lerp", self=x[0], end=x[0, 0], weight=x[0])
    assert (found[1].buffers[4:], found[1].threads) == (([4, 16], [4, 16], [4, 0], [4, 16]), (4, 3))
