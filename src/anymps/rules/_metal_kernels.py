"""Since which torch release an operator runs on a Metal kernel of PyTorch's own; until then it runs on MPSGraph.

Source: the names of the compiled kernels in the macOS arm64 wheels of torch 2.6.0, 2.7.1, 2.8.0, 2.9.1, 2.10.0, 2.11.0,
2.12.1, 2.13.0, 2.14.1 and 2.15.0, and for operators that share a kernel (`rsub` has that of `sub`) the host code that
calls it. `linear` stands with them: since 2.8 the wheels hold `_mps_linear_nograph`, which encodes Apple's product of
matrices without a graph. An operator of which only some calls have a kernel (other products of matrices, convolutions,
attention) is left to MPSGraph. So are kernels that torch 2.5 and older compile at run time: no wheel has their names.
"""

from __future__ import annotations

from typing import Final

from anymps.rules._readings import Reading, Release

READING: Final = Reading(
    "metal_kernels", "names of the compiled Metal kernels in the macOS arm64 wheels", (2, 6), (2, 15)
)

# By the first release whose wheel has the kernel; names without namespace, overload and the underscore of `add_`.
_SINCE: Final = {
    (2, 6): """
        _fused_adam _fused_adamw _fused_sgd _index_put_impl bucketize complex copysign cross fmax fmin i0 im2col index
        index_put linalg_cross polar renorm repeat_interleave searchsorted tril_indices triu_indices upsample_bicubic2d
    """,
    (2, 7): """
        _fused_rms_norm digamma erfinv exp lgamma masked_fill nextafter polygamma rms_norm sinc special_entr
        special_xlog1py special_zeta sqrt tanh upsample_bilinear2d
    """,
    (2, 8): """
        abs absolute acos add asin atan bitwise_not col2im cos cosh cummax cummin div divide erf erfc exp2 expm1
        floor_divide fmod hardshrink hardsigmoid hardsigmoid_backward hardswish hardswish_backward index_copy
        leaky_relu leaky_relu_backward lerp linear log log10 log1p log2 mul multiply native_layer_norm neg negative
        remainder rsqrt rsub sigmoid sin sinh softshrink sub subtract tan tril triu true_divide
    """,
    (2, 9): "avg_pool2d igamma igammac logcumsumexp native_dropout round",
    (2, 10): """
        angle cat clamp clamp_max clamp_min clip elu elu_backward hypot logaddexp logaddexp2 maximum minimum stack
    """,
    (2, 11): "atan2 gcd grid_sampler_2d pow reciprocal square",
    (2, 12): """
        eye fill full full_like index_fill new_full new_zeros ones ones_like relu silu silu_backward xlogy zero zeros
        zeros_like
    """,
    (2, 13): """
        __and__ __iand__ __ior__ __ixor__ __or__ __xor__ _to_copy all amax amin any argmax argmin bernoulli bitwise_and
        bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clone conj_physical contiguous copy count_nonzero
        cumprod cumsum embedding_dense_backward eq gather ge gelu gelu_backward greater greater_equal gt lcm le less
        less_equal lt max mean min nansum native_dropout_backward native_group_norm native_group_norm_backward ne
        normal not_equal random randperm scatter scatter_add scatter_reduce sort sum topk uniform
    """,
    (2, 14): """
        arange glu glu_backward index_add index_select linspace log_sigmoid_backward log_sigmoid_forward logical_not
        median mish mish_backward nan_to_num nanmedian sigmoid_backward upsample_nearest2d
    """,
    (2, 15): """
        _log_softmax _softmax addcdiv addcmul ceil constant_pad_nd flip floor frexp heaviside isneginf isposinf
        linalg_vector_norm logical_and logical_or logical_xor logit_backward norm prod reflection_pad1d reflection_pad2d
        replication_pad2d softplus softplus_backward std std_mean tanh_backward trunc var var_mean where
    """,
}
_FIRST: Final = {name: release for release, names in _SINCE.items() for name in names.split()}


def metal_kernel_since(name: str) -> Release | None:
    """The first release in which an operator runs on a kernel of PyTorch's own; None for one that MPSGraph computes.

    `name` is the operator's without namespace, overload and the underscore of its form in place. An answer of 2.6 may
    be true of older releases, too.
    """
    return _FIRST.get(name)


def has_metal_kernel(name: str, release: Release) -> bool:
    """Whether an operator runs on a kernel of PyTorch's own in a release; else MPSGraph computes it."""
    since = metal_kernel_since(name)
    return since is not None and since <= release
