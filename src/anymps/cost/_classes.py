"""The work of an operator: its class, operations and bytes, from its name and the shapes of its tensors.

Bytes are those of inputs and outputs, each counted once; a tensor that is written in place counts twice. Matrix
operators are in `_matrix.py`. An operator that stands in no list has no class, and no time is predicted for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Final

from anymps.cost._tensors import ITEM_SIZES, OperatorCall, Tensor, read_tensor


@dataclass(frozen=True)
class Work:
    """One kernel's work: its class, bytes to move, and for a product of matrices [m, k] x [k, n], `batch` of them.

    `permuted` is a convolution of a permuted input: such are timed, and older releases take longer for them. From
    torch `own_since` on PyTorch's own kernel does it in another way than before, and is timed for itself. `groups` is
    for a kernel that reduces with one threadgroup for each result: the number of these groups. `conflicts` is for an
    adding scatter: how often it adds to each cache line of its result, if its indices name all places alike.
    """

    kind: str
    size: int
    dtype: str
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    permuted: bool = False
    own_since: tuple[int, int] | None = None
    groups: int = 0
    conflicts: int = 0

    @property
    def operations(self) -> int:
        """Floating-point operations of a product of matrices: a multiply-add is two."""
        return 2 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True)
class Operands:
    """The tensors of a call, those on the mps device apart."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def largest(self) -> Tensor:
        """The largest tensor of the call."""
        return max((*self.inputs, *self.outputs), key=lambda tensor: tensor.size)

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(tensor.size for tensor in (*self.inputs, *self.outputs))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The operators that native_functions.yaml of torch 2.13 tags `pointwise`, and those of the same kind without the tag.
_ELEMENTWISE: Final = _words(
    """
    __ilshift__ __ixor__ __lshift__ __rshift__ __xor__ __and__ __or__ __iand__ __ior__ __irshift__ _conj_physical abs
    absolute acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip conj_physical copysign cos cosh
    deg2rad digamma div elu elu_backward eq equal erf erfc erfinv exp exp2 expm1 float_power floor floor_divide fmax
    fmin fmod frac frexp gcd ge gelu gelu_backward glu glu_backward greater greater_equal gt hardshrink hardsigmoid
    hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward heaviside hypot i0 igamma igammac
    isfinite isinf isnan isneginf isposinf lcm ldexp le leaky_relu leaky_relu_backward lerp less less_equal lgamma log
    log10 log1p log2 logaddexp logaddexp2 log_sigmoid_forward log_sigmoid_backward logical_and logical_not logical_or
    logical_xor logit logit_backward lt masked_fill maximum minimum mish mish_backward mul multiply mvlgamma nan_to_num
    native_dropout_backward ne neg negative nextafter not_equal polygamma positive pow _prelu_kernel
    _prelu_kernel_backward rad2deg reciprocal relu relu6 remainder round rrelu rsqrt rsub selu sgn sigmoid
    sigmoid_backward sign signbit silu silu_backward sin sinc sinh softplus softplus_backward softshrink sqrt square
    sub subtract tan tanh tanh_backward threshold threshold_backward true_divide trunc where xlogy tril triu
    """
)
_COPIES: Final = _words(
    "copy clone cat repeat contiguous _to_copy constant_pad_nd roll flip _reshape_copy expand_copy view_copy stack"
    " reflection_pad1d reflection_pad2d replication_pad2d im2col col2im pixel_shuffle pixel_unshuffle"
    " reflection_pad1d_backward reflection_pad2d_backward replication_pad2d_backward"
    " upsample_nearest1d upsample_nearest2d upsample_nearest1d_backward upsample_nearest2d_backward"
    " upsample_linear1d upsample_bilinear2d upsample_linear1d_backward upsample_bilinear2d_backward"
)
_FILLS: Final = _words(
    "fill zero zeros new_zeros ones full new_full zeros_like ones_like full_like arange linspace eye select_backward"
    " slice_backward scalar_tensor"
)
SUMS: Final = _words(
    "sum mean amax amin max min prod all any _is_all_true _is_any_true norm linalg_vector_norm var std var_mean"
    " std_mean logsumexp nansum count_nonzero"
)
_SORTS: Final = _words("sort argsort topk msort")
# Bytes are counted by hand for those that read or write rows by an index: the table itself is not read as a whole.
_GATHERS: Final = _words("index index_select gather embedding take")
_SCATTERS: Final = _words("index_put _index_put_impl scatter index_copy index_fill masked_scatter")
_ADDING_SCATTERS: Final = _words("scatter_add index_add embedding_dense_backward scatter_reduce index_reduce")
_ELEMENT_BY_ELEMENT: Final = _words("scatter scatter_add scatter_reduce")
"""Scatters whose index has a place for each element that they take of the source; the others take whole rows."""

_CONFLICTING: Final = _words("scatter_add index_add scatter_reduce")
"""Adding scatters that MPSGraph serialises for each cache line. Not the gradient of an embedding: BERT-tiny's of 2,048
tokens onto two rows would take 0.15 s, and its whole step takes 22 ms on an M1 Pro with torch 2.4."""
_CACHE_LINE: Final = 128  # bytes

_CLASSES: Final = {
    "softmax": "_softmax _log_softmax _safe_softmax",
    "softmax_backward": "_softmax_backward_data _log_softmax_backward_data",
    "layer_norm": "native_layer_norm _fused_rms_norm rms_norm",
    "batch_norm": "native_batch_norm _native_batch_norm_legit _batch_norm_with_update",
    "group_norm": "native_group_norm",
    "norm_backward": "native_layer_norm_backward native_batch_norm_backward native_group_norm_backward"
    " batch_norm_backward _fused_rms_norm_backward",
    "scan": "cumsum cumprod logcumsumexp cummax cummin",
    "pool": "max_pool2d max_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d"
    " avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_max_pool2d"
    " adaptive_max_pool2d_backward",
    "loss": "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits",
    "elementwise": "mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward"
    " linalg_cross",
    "random": "bernoulli native_dropout uniform normal random randperm multinomial",
    "median": "median nanmedian",
    "grid_sample": "grid_sampler_2d",
}
_BY_NAME: Final = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
VIEWS: Final = _words(
    """
    view reshape _unsafe_view _reshape_alias transpose t permute expand expand_as squeeze unsqueeze slice select narrow
    split split_with_sizes chunk unbind detach alias as_strided unfold diagonal movedim swapaxes flatten unflatten
    unsafe_split unsafe_split_with_sizes unsafe_chunk
    view_as_real view_as_complex numpy_T mT T lift_fresh empty empty_like empty_strided new_empty set
    resize
    """
)
"""Operators that start no kernel: their results share memory with the input, or are not written."""


_OF_INDUCTOR: Final = "metal::generated_kernel"
"""Kernels that torch.compile fuses: each of their buffers is read or written once, which is what takes the time of the
elementwise ones. Judgement: no timing of one is among the data. A person's own kernel has no class."""


def operands(call: OperatorCall) -> Operands:
    """Read the tensors of a call; scalars that lie on the CPU travel with the launch and are left out.

    Raises CostError for texts that are no tensors.
    """
    inputs, outputs = (tuple(map(read_tensor, texts)) for texts in (call.inputs, call.outputs))
    if call.outs and not outputs:
        inputs, outputs = inputs[: -call.outs], inputs[-call.outs :]
    return Operands(*(tuple(t for t in tensors if not (t.on_cpu and not t.shape)) for tensors in (inputs, outputs)))


def plain_works(call: OperatorCall, tensors: Operands) -> tuple[Work, ...] | None:
    """The kernels of an operator that is no product of matrices; None if it has no class."""
    name = call.name
    if call.operator.startswith(_OF_INDUCTOR):
        return (Work("elementwise", tensors.size, tensors.largest.dtype),)
    kind = _kind(call, tensors)
    if kind is None:
        return None
    if name in _SCATTERS | _ADDING_SCATTERS and len(tensors.inputs) > 1:
        return _scatter(kind, call, tensors)
    size = tensors.size
    dtype = tensors.largest.dtype
    if name in _GATHERS:
        size = 2 * sum(t.size for t in tensors.outputs) + sum(t.size for t in tensors.inputs[1:])
    elif name.startswith("nll_loss"):
        # One value of each row is read forward; backward writes the whole gradient.
        size = tensors.outputs[0].size if "backward" in name else 2 * tensors.inputs[-1].size
    elif not tensors.outputs and name not in _COPIES:
        # In place: what is written was read as the first input. Fills only write.
        written = 0 if name in _FILLS | {"bernoulli", "uniform", "normal", "random"} else tensors.inputs[0].size
        size = (tensors.inputs[0].size if not written else size) + written
    return (Work(kind, size, dtype),)


def _scatter(kind: str, call: OperatorCall, tensors: Operands) -> tuple[Work, ...]:
    """A scatter moves its indices, what they take of the source, and the places that they write, and nothing else.

    Where the result is another tensor than the table, the table is copied first; that of an embedding's gradient is
    filled.
    """
    name, (table, *others) = call.name, tensors.inputs
    if name == "embedding_dense_backward":
        made = sum(t.size for t in tensors.outputs)
        return Work("fill", made, table.dtype), Work(kind, 2 * table.size + sum(t.size for t in others), table.dtype)
    source = others.pop() if len(others) > 1 and others[-1].dtype == table.dtype else None
    places = max(t.elements for t in others)
    if name == "masked_scatter" and source is not None:
        places = min(places, source.elements)  # the mask is as large as the table
    elif name == "index_fill":
        places *= table.elements // max(1, table.shape[call.axis or 0] if table.shape else 1)
    elif source is not None and name not in _ELEMENT_BY_ELEMENT:
        places = max(places, source.elements)  # whole rows, or one value for all of them
    moved = places * (table.size // max(1, table.elements))
    read = min(source.size, moved) if source is not None else 0
    conflicts = _conflicts(call, table, others[0], moved) if name in _CONFLICTING else 0
    scatter = Work(kind, sum(t.size for t in others) + read + moved, table.dtype, conflicts=conflicts)
    copied = table.size + sum(t.size for t in tensors.outputs)
    return (Work("copy", copied, table.dtype), scatter) if tensors.outputs else (scatter,)


def _conflicts(call: OperatorCall, table: Tensor, index: Tensor, moved: int) -> int:
    """How many of the additions fall on each cache line of the table, at least.

    An index with a place for each element may name some columns alone, whose rows then lie on lines of their own.
    """
    item = ITEM_SIZES[table.dtype]
    lines = ceil(table.size / _CACHE_LINE)
    if call.name in _ELEMENT_BY_ELEMENT and index.shape:
        axis = (call.axis or 0) % len(index.shape)
        column = max(1, prod(index.shape[:axis])) * (table.shape[axis] if table.shape else 1)
        lines = min(lines, column * ceil(prod(index.shape[axis + 1 :]) * item / _CACHE_LINE))
    return moved // (item * max(1, lines))


def _kind(call: OperatorCall, tensors: Operands) -> str | None:
    name = call.name
    if name in _COPIES:
        return "blit" if call.blit else "strided_copy" if call.strided else "copy"
    if name in _FILLS:
        return "fill"
    if name in ("max", "min") and len(tensors.inputs) > 1:
        return "elementwise"
    if name in SUMS:
        return _reduction(call, tensors)
    if name in _SORTS:
        return "sort" if axis_of(call, tensors) in (None, "inner") else "sort_outer"
    if name in ("argmax", "argmin"):
        return "argmax_inner" if axis_of(call, tensors) in (None, "inner") else "argmax_outer"
    if name.startswith("nll_loss"):
        return "gather" if not name.endswith("backward") else "fill"
    if name in _GATHERS:
        return "gather"
    if name in _SCATTERS:
        return "scatter"
    if name in _ADDING_SCATTERS:
        return "scatter_reduce"
    if name in _ELEMENTWISE or name.startswith("_fused_"):
        return _BY_NAME.get(name, "elementwise")
    return _BY_NAME.get(name)


def _reduction(call: OperatorCall, tensors: Operands) -> str:
    """The class of a sum: over everything, the last axis, the first one, or one between."""
    if tensors.outputs and tensors.outputs[0].elements == 1:
        return "reduce_all"
    axis = axis_of(call, tensors)
    return {"inner": "reduce_inner", "first": "reduce_first"}.get(axis or "inner", "reduce_outer")


def axis_of(call: OperatorCall, tensors: Operands) -> str | None:
    """Where the reduced axis lies: `first`, `inner` (the last), `outer`, or None for all; as the shapes tell it."""
    given = tensors.inputs[0].shape
    made = tensors.outputs[0].shape if tensors.outputs else ()
    if tensors.outputs and tensors.outputs[0].elements == 1:
        return None
    if call.axis is not None:
        place = call.axis % max(1, len(given))
    elif len(made) == len(given):
        changed = [i for i, (a, b) in enumerate(zip(given, made, strict=True)) if a != b]
        place = changed[-1] if changed else len(given) - 1
    else:
        places = [i for i in range(len(given)) if given[:i] + given[i + 1 :] == made]
        # Several axes at once: those that remain tell whether the last one went.
        place = places[-1] if places else (0 if made and made[-1] == given[-1] else len(given) - 1)
    if place == len(given) - 1:
        return "inner"
    return "first" if place == 0 else "outer"
