"""How many numbers an operator adds up for one number of its result, by the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from anymps.numerics._functions import names_of

Shape = tuple[int, ...]


def _last_of(place: int) -> Callable[[Sequence[Shape], Shape], int]:
    """The length of the last axis of one input: the inner length of a matrix product."""
    there = place + 1 if place >= 0 else -place
    return lambda shapes, result: shapes[place][-1] if len(shapes) >= there and shapes[place] else 1


def _reduced(shapes: Sequence[Shape], result: Shape) -> int:
    """A reduction: the numbers of the largest input by those of the result."""
    return max(1, max((prod(shape) for shape in shapes), default=1) // max(1, prod(result)))


def _longest_axis(shapes: Sequence[Shape], result: Shape) -> int:
    """A scan, or a sum along one axis whose number is not known."""
    return max((size for shape in shapes for size in shape), default=1)


def _all(shapes: Sequence[Shape], result: Shape) -> int:
    """At most every number of the largest input: sums whose places are data."""
    return max((prod(shape) for shape in shapes), default=1)


def _convolution(shapes: Sequence[Shape], result: Shape) -> int:
    """Channels by the window, in either direction of a convolution: (input, weight, ...)."""
    weight = shapes[1] if len(shapes) > 1 else ()
    if len(weight) < 2:
        return _all(shapes, result)
    window = prod(weight[2:])
    return max(weight[0], weight[1]) * window


def _convolution_backward(shapes: Sequence[Shape], result: Shape) -> int:
    """(gradient, input, weight): the gradient of the weight sums batch and places, that of the input channels."""
    if len(shapes) < 3 or len(shapes[2]) < 2:
        return _all(shapes, result)
    gradient, _, weight = shapes[:3]
    if result == shapes[1]:
        return max(weight[0], weight[1]) * prod(weight[2:])
    return max(1, prod(gradient) // max(1, gradient[1] if len(gradient) > 1 else 1))


def _attention(shapes: Sequence[Shape], result: Shape) -> int:
    """(query, key, value): products over the width, then over the keys."""
    if len(shapes) < 2 or not shapes[0] or len(shapes[1]) < 2:
        return _all(shapes, result)
    return shapes[0][-1] + shapes[1][-2]


def _two(shapes: Sequence[Shape], result: Shape) -> int:
    """The two products of a cross product."""
    return 2


def _per_channel(shapes: Sequence[Shape], result: Shape) -> int:
    """The second axis stays: batch norm's statistics."""
    first = shapes[0] if shapes else ()
    return max(1, prod(first) // max(1, first[1] if len(first) > 1 else 1))


def _per_first(shapes: Sequence[Shape], result: Shape) -> int:
    """At most one sample: group norm and layer norm."""
    first = shapes[0] if shapes else ()
    return max(1, prod(first[1:]))


LOGARITHMS_OF_SUMS: Final = names_of("log_softmax _log_softmax logsumexp logcumsumexp")
"""The logarithm of a sum of exponentials."""

ADDED_IN_FLOAT32: Final = names_of("sum mean nansum norm linalg_vector_norm native_layer_norm layer_norm")
"""Those whose kernels add up half precision in float32: as measured with the Metal kernels of torch 2.13.0, and by
`acc_type` in the kernels for CUDA."""

_PRODUCTS: Final = names_of(
    """
    mm bmm matmul linear chain_matmul _mps_linear addmm baddbmm addbmm _addmm_activation linear_backward einsum
    bilinear _trilinear convolution _convolution conv1d conv2d conv3d mps_convolution _mps_convolution
    conv_transpose1d conv_transpose2d conv_transpose3d _mps_convolution_transpose convolution_backward
    mps_convolution_backward scaled_dot_product_attention _scaled_dot_product_attention_math
    _scaled_dot_product_attention_math_for_mps _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention
    """
)
"""Those whose sums are of products that libraries share out among threads in blocks."""

_LENGTHS: Final = (
    (_last_of(0), "mm bmm mv dot vdot matmul linear inner chain_matmul _mps_linear"),
    (_last_of(-2), "addmm baddbmm addbmm addmv _addmm_activation"),
    (_two, "linalg_cross"),
    (_longest_axis, "linear_backward einsum bilinear _trilinear cumsum cumprod logcumsumexp softmax _softmax renorm"),
    (_longest_axis, "log_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data"),
    (_reduced, "sum mean nansum nanmean norm linalg_vector_norm linalg_norm var std var_mean std_mean prod trace"),
    (_reduced, "logsumexp mse_loss l1_loss smooth_l1_loss huber_loss nll_loss_forward nll_loss2d_forward kl_div"),
    (_reduced, "binary_cross_entropy"),
    (_all, "embedding_dense_backward scatter_add scatter_reduce index_add index_put index_reduce _index_put_impl"),
    (_all, "embedding_bag _embedding_bag _embedding_bag_dense_backward bincount histc"),
    (_convolution, "convolution _convolution conv1d conv2d conv3d mps_convolution _mps_convolution"),
    (_convolution, "conv_transpose1d conv_transpose2d conv_transpose3d _mps_convolution_transpose"),
    (_convolution_backward, "convolution_backward mps_convolution_backward"),
    (_attention, "scaled_dot_product_attention _scaled_dot_product_attention_math"),
    (_attention, "_scaled_dot_product_attention_math_for_mps _scaled_dot_product_flash_attention"),
    (_attention, "_scaled_dot_product_efficient_attention"),
    (_per_channel, "native_batch_norm batch_norm native_batch_norm_backward _native_batch_norm_legit"),
    (_per_first, "native_layer_norm layer_norm native_layer_norm_backward native_group_norm rms_norm _fused_rms_norm"),
    (_per_first, "native_group_norm_backward _fused_rms_norm_backward"),
)
_BY_NAME: Final = {name: length for length, names in _LENGTHS for name in names.split()}


def terms_of(name: str, shapes: Sequence[Shape], result: Shape) -> int | None:
    """The length of an operator's sums; None if it is not known to add up anything.

    `name` is without namespace, overload and the underscore of its form in place; `shapes` are those of its tensor
    inputs in order.
    """
    count = _BY_NAME.get(name)
    return None if count is None else max(1, count(shapes, result))


def multiplications_of(name: str, shapes: Sequence[Shape], results: Sequence[Shape]) -> int:
    """How many products a matrix product, convolution or attention adds up for all its results; 0 of another operator.

    The arguments are those of `terms_of`, with the sizes of all results.
    """
    if name not in _PRODUCTS:
        return 0
    return sum(prod(result) * (terms_of(name, shapes, result) or 1) for result in results)
