"""Under `kernels="real"` each operator that has a described launch comes to its kernel, from a program that calls it.

Needs the kernels of torch 2.13.0 (`anymps kernels add --download`), and for one test those of 2.15.0.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernel_files import needs_kernels
from processes import MAC, run_python

RELEASE = "2.13.0"
_LATER = {"logcumsumexp": "_logcumsumexp"}
"""Operators that PyTorch itself makes of others before a backend sees them."""
_OF_2_15 = {
    *("ceil", "floor", "isneginf", "isposinf", "heaviside", "addcmul", "addcdiv"),
    *("_softmax", "_log_softmax", "arange"),
    *("mish", "trunc", "softplus", "nan_to_num", "log_sigmoid_forward", "prod", "var", "std"),
    *("logical_not", "logical_and", "logical_or", "logical_xor", "special_laguerre_polynomial_l"),
    *("sigmoid_backward", "tanh_backward", "mish_backward", "log_sigmoid_backward", "softplus_backward"),
    *("upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward", "upsample_bilinear2d_backward"),
    *("_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward"),
    *("linspace", "logit_backward"),
    *(f"{kind}_pad{rank}d_backward" for kind in ("reflection", "replication") for rank in (2, 3)),
    "index_add",
}
"""Operators of which torch 2.13 has no kernel."""

_SCRIPT = """
import json, sys
import torch
import torch.nn.functional as F
import anymps
anymps.enable(MAC, quiet=True)
from anymps.device import real_calls
from anymps.kernels.launches import DESCRIBED
from anymps.kernels.launches._binary import BINARY
from anymps.kernels.launches._unary import UNARY
aten = torch.ops.aten

x, y = torch.rand(4, 40, device="mps") / 2, torch.rand(4, 40, device="mps")
a, b = (torch.randint(1, 6, (4, 40), device="mps") for _ in range(2))
image, space = torch.rand(2, 8, 6, 6, device="mps"), torch.rand(1, 2, 6, 6, 6, device="mps")
places = torch.randint(0, 4, (4, 40), device="mps")
words, bags = torch.tensor([0, 2, 1, 3], device="mps"), torch.tensor([0, 2], device="mps")

heads, square = torch.rand(1, 2, 5, 64, device="mps"), x @ x.t() + torch.eye(4, device="mps")
packed = torch.randint(0, 255, (32, 64), device="mps", dtype=torch.uint8)

def back(function, *tensors):
    given = [one.detach().clone().requires_grad_() for one in tensors]
    function(*given).sum().backward()

def bag(**more):
    return lambda weight: F.embedding_bag(words, weight, bags, **more)

PROGRAMS = {name: lambda name=name: getattr(aten, name)(x) for name in UNARY}
PROGRAMS |= {name: lambda name=name: getattr(aten, name)(x, y) for name in BINARY}
PROGRAMS |= {
    name: lambda name=name: getattr(aten, name)(a, b)
    for name in "gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()
}
PROGRAMS |= {
    "bitwise_not": lambda: ~a,
    "pow": lambda: x.pow(2.5),
    "elu_backward": lambda: back(F.elu, x - 0.25),
    "polygamma": lambda: torch.polygamma(1, x),
    "lerp": lambda: torch.lerp(x, y, 0.3),
    **{name: lambda name=name: back(getattr(F, name.removesuffix("_backward")), x - 0.25) for name in (
        "silu_backward", "hardswish_backward", "hardsigmoid_backward", "gelu_backward", "leaky_relu_backward",
        "hardshrink_backward", "softshrink_backward")},
    **{name: lambda name=name: getattr(x, name)(-1) for name in (
        "nansum", "amax", "amin", "cumsum", "cumprod", "logcumsumexp", "sort", "mean", "sum")},
    "native_layer_norm": lambda: F.layer_norm(x, (40,)),
    "native_group_norm": lambda: F.group_norm(image, 4),
    "native_group_norm_backward": lambda: back(
        lambda i, w, c: F.group_norm(i, 4, w, c), image, image[0, :, 0, 0], image[1, :, 0, 0]),
    "scatter": lambda: x.scatter(0, places, y, reduce="add"),
    "scatter_add": lambda: back(lambda it: it.gather(0, places), x),
    "scatter_reduce": lambda: x.scatter_reduce(0, places, y, "sum"),
    "embedding_dense_backward": lambda: back(lambda weight: F.embedding(words, weight), x),
    "_embedding_bag": lambda: back(bag(mode="sum"), x),
    "_embedding_bag_forward_only": lambda: bag(mode="sum")(x),
    "_embedding_bag_backward": lambda: back(bag(mode="sum"), x),
    "_embedding_bag_dense_backward": lambda: aten._embedding_bag_dense_backward(
        y[:2], words, words // 2, torch.tensor([2, 2], device="mps"), bags, 4, False, 0, None),
    "_embedding_bag_per_sample_weights_backward": lambda: back(
        lambda scales: F.embedding_bag(words, x, bags, mode="sum", per_sample_weights=scales), y[0, :4]),
    "adaptive_max_pool2d": lambda: F.adaptive_max_pool2d(image, 3),
    "avg_pool3d_backward": lambda: back(lambda it: F.avg_pool3d(it, 2), space),
    "upsample_linear1d": lambda: F.interpolate(image[0], 9, mode="linear"),
    "upsample_bilinear2d": lambda: F.interpolate(image, 9, mode="bilinear"),
    "upsample_bicubic2d": lambda: F.interpolate(image, 9, mode="bicubic"),
    "_upsample_bilinear2d_aa": lambda: F.interpolate(image, 4, mode="bilinear", antialias=True),
    "_upsample_bicubic2d_aa": lambda: F.interpolate(image, 4, mode="bicubic", antialias=True),
    "upsample_trilinear3d": lambda: F.interpolate(space, 4, mode="trilinear"),
    "grid_sampler_2d": lambda: F.grid_sample(image, torch.rand(2, 3, 3, 2, device="mps")),
    "grid_sampler_2d_backward": lambda: back(F.grid_sample, image, torch.rand(2, 3, 3, 2, device="mps")),
    "grid_sampler_3d": lambda: F.grid_sample(space, torch.rand(1, 3, 3, 3, 3, device="mps")),
    "grid_sampler_3d_backward": lambda: back(F.grid_sample, space, torch.rand(1, 3, 3, 3, 3, device="mps")),
    "upsample_bicubic2d_backward": lambda: back(lambda it: F.interpolate(it, 9, mode="bicubic"), image),
    "upsample_trilinear3d_backward": lambda: back(lambda it: F.interpolate(it, 4, mode="trilinear"), space),
    "upsample_nearest3d_backward": lambda: back(lambda it: F.interpolate(it, 4, mode="nearest"), space),
    "_upsample_nearest_exact3d_backward": lambda: back(lambda it: F.interpolate(it, 4, mode="nearest-exact"), space),
    "topk": lambda: x.topk(3), "kthvalue": lambda: x.kthvalue(3),
    "replication_pad1d_backward": lambda: back(lambda it: F.pad(it, (1, 2), mode="replicate"), image[0]),
    "unfold_backward": lambda: back(lambda it: it.unfold(1, 4, 2), x),
    "histc": lambda: torch.histc(x, 9), "histogram": lambda: torch.histogram(x, 9),
    "_scaled_dot_product_attention_math_for_mps": lambda: F.scaled_dot_product_attention(heads, heads, heads),
    "norm": lambda: x.norm(2, 1), "linalg_vector_norm": lambda: torch.linalg.vector_norm(x, 2, 1),
    "linalg_cross": lambda: torch.linalg.cross(x[:, :3], y[:, :3]),
    "_convert_weight_to_int4pack": lambda: torch._convert_weight_to_int4pack(packed, 2),
    "_weight_int4pack_mm": lambda: torch._weight_int4pack_mm(
        torch.rand(4, 128, device="mps"), torch._convert_weight_to_int4pack(packed, 2), 32,
        torch.rand(4, 32, 2, device="mps")),
    "linalg_cholesky_ex": lambda: torch.linalg.cholesky_ex(square), "linalg_qr": lambda: torch.linalg.qr(square),
    "col2im": lambda: F.fold(F.unfold(image, 2), (6, 6), 2),
}

counted = {}
for name in DESCRIBED:
    if name in OF_2_15:
        continue
    before = real_calls()
    PROGRAMS[AS_THEY_ARE_CALLED.get(name, name)]()
    ran = real_calls() - before
    names = {one.partition("::")[2].partition(".")[0] for one in ran}
    counted[name] = sorted(names | {one.removesuffix("_") for one in names})
before = real_calls()
for _ in range(10):
    (-x).abs()
counted["abs, ten times"] = dict(real_calls() - before)
out = torch.empty(0, device="mps")
torch.abs(image.to(memory_format=torch.channels_last), out=out)
counted["out="] = [out.stride() == image.to(memory_format=torch.channels_last).stride(), bool((out == image).all())]
print(json.dumps(counted))
"""


_NOT_BY_2_15 = {"relu", "native_layer_norm", "histc", "histogram", "linalg_qr", "amax", "amin"}
"""What these programs' sizes and dtypes bring to a kernel of 2.13 and to none that is described of 2.15."""


def _count(kernels: str, release: str) -> dict[str, Any]:
    """By operator, what ran on kernels in its program."""
    needs_kernels(release, installed=RELEASE)
    called = {helper: name for name, helper in _LATER.items()}
    script = f"MAC = {MAC!r}\nAS_THEY_ARE_CALLED = {called}\nOF_2_15 = {_OF_2_15}\n{_SCRIPT}"
    lines = run_python(script, {"ANYMPS_KERNELS": kernels}).lines
    return dict(json.loads(lines[-1]))


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """By operator, what ran on kernels of 2.13 in its program."""
    return _count("real", RELEASE)


@pytest.mark.slow
def test_no_described_operator_ends_a_program_on_the_kernels_of_2_15() -> None:
    """Each program runs to its end with the structures that this release's kernels take."""
    counted = _count("2.15", "2.15.0")
    lacking = {name for name, ran in counted.items() if isinstance(ran, list) and _LATER.get(name, name) not in ran}
    assert lacking - {"out="} == _NOT_BY_2_15


def test_each_described_operator_reaches_its_kernel(counted: dict[str, Any]) -> None:
    """By its own name, or by that of what PyTorch makes of it."""
    from anymps.kernels.launches import DESCRIBED

    lacking = {name for name in DESCRIBED if _LATER.get(name, name) not in counted.get(name, ())}
    assert lacking == _OF_2_15


def test_abs_runs_on_its_kernel_each_time(counted: dict[str, Any]) -> None:
    """PyTorch makes it of its `out=` form and an empty tensor, which gets the shape of the result."""
    assert counted["abs, ten times"] == {"aten::neg": 10, "aten::abs.out": 10}


def test_an_empty_out_gets_the_strides_of_the_operand(counted: dict[str, Any]) -> None:
    """As from the CPU's kernels."""
    assert counted["out="] == [True, True]
