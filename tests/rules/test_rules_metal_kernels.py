"""Which operators run on Metal kernels of PyTorch's own, by release: the table, and the wheel's kernels beside it."""

from __future__ import annotations

import pytest
import torch

from anymps._tables import read_table
from anymps.cost._classes import VIEWS
from anymps.kernels import added_releases
from anymps.rules import _metal_kernels, has_metal_kernel, metal_kernel_since, parse_torch_version
from anymps.rules._metal_kernels import _FIRST

# Operators whose kernel has another's name: that of the operator, or of the idea, that they share it with.
SHARED = {
    "absolute": "abs", "clip": "clamp", "clone": "copy", "contiguous": "copy", "_to_copy": "copy", "divide": "div",
    "true_divide": "div", "floor_divide": "div", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne", "multiply": "mul", "negative": "neg", "rsub": "sub", "subtract": "sub",
    "mean": "sum", "amax": "max", "amin": "min", "stack": "cat", "square": "sqr", "full": "fill", "full_like": "fill",
    "new_full": "fill", "new_zeros": "fill", "ones": "fill", "ones_like": "fill", "zero": "fill", "zeros": "fill",
    "zeros_like": "fill", "__and__": "bitwise_and", "__iand__": "bitwise_and", "__or__": "bitwise_or",
    "__ior__": "bitwise_or", "__xor__": "bitwise_xor", "__ixor__": "bitwise_xor", "conj_physical": "copy_conj",
    "linalg_vector_norm": "norm",
}  # fmt: skip
# Kernels whose name says what they do in other words.
WORDS = {
    "_fused_rms_norm": "rms_norm", "_index_put_impl": "index_put", "avg_pool2d": "avg_pool",
    "bucketize": "searchsorted",
    "complex": "make_complex", "index": "index_select", "linalg_cross": "cross",
    "linear": "", "native_dropout": "dropout_fwd", "native_dropout_backward": "dropout_bwd",
    "native_group_norm": "group_norm", "native_group_norm_backward": "group_norm_backward",
    "native_layer_norm": "layer_norm", "randperm": "randperm", "scatter": "scatter_set", "scatter_reduce": "scatter_",
    "sort": "sort_block", "topk": "topk", "special_entr": "entr", "special_xlog1py": "xlog1py", "special_zeta": "zeta",
    "logcumsumexp": "logcumsumexp", "repeat_interleave": "repeat_interleave", "uniform": "uniform",
    "eye": "eye", "random": "random", "upsample_bicubic2d": "upsample_bicubic2d", "gather": "gather",
}  # fmt: skip


def test_each_operator_stands_once() -> None:
    """A name in two releases would hide one of them, and a view has no kernel at all."""
    names = " ".join(read_table(_metal_kernels.__file__, "metal_kernels.toml").values()).split()
    assert sorted(names) == sorted(_FIRST)
    assert not VIEWS & set(names)


def test_the_release_of_an_operator() -> None:
    """From the first wheel with the kernel; a convolution is MPSGraph's."""
    assert metal_kernel_since("add") == (2, 8)
    assert metal_kernel_since("gelu") == (2, 13)
    assert metal_kernel_since("_softmax") == (2, 15)
    assert metal_kernel_since("convolution") is None
    assert [has_metal_kernel("gelu", (2, minor)) for minor in (12, 13, 14)] == [False, True, True]
    assert not has_metal_kernel("convolution", (2, 15))


def test_the_installed_releases_wheel_has_each_kernel() -> None:
    """By its own name, by that of the operator that shares it, or by other words; `linear` has Apple's kernel."""
    import anymps

    release = parse_torch_version(torch.__version__)
    if torch.__version__.partition("+")[0] not in added_releases():
        pytest.skip(f"the Metal kernels of torch {release} have not been added (anymps kernels add)")
    pytest.importorskip("llvmlite", reason="needs the extra kernels")
    kernels = dir(anymps.metal_kernels())
    missing = []
    for name, since in _FIRST.items():
        word = WORDS.get(name, SHARED.get(name, name).removeprefix("special_").removeprefix("_"))
        if since <= release.release and not any(word in kernel for kernel in kernels):
            missing.append(name)
    assert missing == []
