"""Rows of `_table`: convolution, normalisation, pooling, recurrent layers, attention.

Sources: as in `_arithmetic`.
"""

from __future__ import annotations

from typing import Final

from anymps.rules._limits import OPERATOR_LIMITS
from anymps.rules.faults._model import NO_END, Check, Hazard, Outcome

_CONVOLUTION: Final = "aten/src/ATen/native/mps/operations/Convolution.mm"
_NORM: Final = "aten/src/ATen/native/mps/operations/Normalization.mm"
_LSTM: Final = "aten/src/ATen/native/mps/operations/RnnOps.mm"
_ATTENTION: Final = "aten/src/ATen/native/mps/operations/Attention.mm"

_BATCH_NORMS: Final = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")

LAYERS: Final[tuple[Hazard, ...]] = (
    # convolution
    Hazard(
        "MPS621",
        "Convolution with a weight that is a view",
        ("convolution", "convolution_backward"),
        Check.STRIDED_WEIGHT,
        Outcome.WRONG,
        what="the strides of a convolution's weight are ignored: a weight that is a slice or a permuted view is read "
        "as if it were contiguous",
        fix="Pass `weight.contiguous()`.",
        issues=(192212,),
        source=f"{_CONVOLUTION}; fixed by pull request 192303",
        until=(2, 13),
        fixed=(2, 14),
        macos=(((15, 0), NO_END),),
    ),
    Hazard(
        "MPS622",
        "Channel slice of a channels_last tensor",
        ("convolution", *_BATCH_NORMS, "avg_pool2d", "_adaptive_avg_pool2d"),
        Check.CHANNEL_SLICE,
        Outcome.WRONG,
        what="a channel slice of a channels_last tensor is read as if it were packed",
        fix="Make it contiguous: `x[:, :c].contiguous()`.",
        issues=(180984, 174345),
        source=f"{_CONVOLUTION}; fixed by pull request 180992",
        until=(2, 11),
    ),
    Hazard(
        "MPS623",
        "Convolution kernel of 256 or more",
        ("convolution",),
        Check.WIDE_KERNEL,
        Outcome.WRONG,
        what="a convolution whose kernel has 256 or more elements in one dimension gives a wrong result",
        fix="Split the kernel into pieces below 256, or use `torch.fft`.",
        issues=(188335,),
        source=f"{_CONVOLUTION}; fixed by pull request 188359",
        low=256,
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS624",
        "Gradient of a convolution's weight for 65536 or more samples",
        ("convolution_backward",),
        Check.LARGE_MINIBATCH,
        Outcome.WRONG,
        what="the gradient of a convolution's weight is wrong for a minibatch of 65536 or more",
        fix="Use smaller batches with gradient accumulation.",
        issues=(96225,),
        source=f"{_CONVOLUTION} (open)",
        low=65536,
        until=(2, 15),
    ),
    Hazard(
        "MPS625",
        "Convolution result of more than 65536 in one dimension",
        ("convolution",),
        Check.LARGE_OUTPUT,
        Outcome.RAISES,
        what="before macOS 15.1 no dimension of a convolution's result may be larger than 65536",
        fix="Update macOS to 15.1, or split the input.",
        issues=(129207,),
        source=_CONVOLUTION,
        low=65536,
        until=(2, 15),
        macos=(((0, 0), (15, 1)),),
        error="NotImplementedError",
        text="Output channels > 65536 not supported at the MPS device. ",
    ),
    Hazard(
        "MPS626",
        "3-D convolution on macOS 26.2",
        ("convolution",),
        Check.CONVOLUTION_3D,
        Outcome.WRONG,
        what="3-D convolution of a contiguous tensor goes through Metal 4 kernels that are wrong on macOS 26.2",
        fix="Update macOS to 26.3.",
        issues=(197114, 188802),
        source=_CONVOLUTION,
        since=(2, 14),
        until=(2, 15),
        macos=(((26, 2), (26, 3)),),
    ),
    # normalisation
    Hazard(
        "MPS627",
        "Backward of a batch norm over a channels_last or permuted tensor",
        ("native_batch_norm_backward", "batch_norm_backward"),
        Check.STRIDED_NORM,
        Outcome.WRONG,
        what="the backward of a batch norm reads a channels_last or permuted input in the wrong order: gradients of "
        "weight and input are wrong by orders of magnitude, or the call raises `view size is not compatible with "
        "input tensor's size and stride`",
        fix="Normalize a contiguous tensor: `norm(x.contiguous())`.",
        issues=(175189, 156792),
        source=f"{_NORM}; pull request 181411; fixed by pull request 188371",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS628",
        "BatchNorm3d of a permuted tensor",
        _BATCH_NORMS,
        Check.STRIDED_NORM_5D,
        Outcome.ABORTS,
        what="batch norm of a 5-D tensor that is not contiguous ends in an uncaught NSRangeException",
        fix="Normalize a contiguous tensor: `norm(x.contiguous())`.",
        issues=(190645,),
        source=f"{_NORM} (reported in July 2026, when 2.13 was the newest release)",
        until=(2, 13),
        text="anymps: batch norm of a 5-D tensor that is not contiguous ends the process on a Mac (uncaught "
        "NSRangeException, pytorch issue 190645); this exception is anymps' own. Normalise `x.contiguous()`.",
    ),
    Hazard(
        "MPS629",
        "Gradients of a layer norm whose input needs none",
        ("native_layer_norm_backward",),
        Check.NORM_WITHOUT_INPUT_GRADIENT,
        Outcome.WRONG,
        what="gradients of a layer norm's weight and bias are wrong, and differ from run to run, if its input needs "
        "no gradient",
        fix="Let the input require one: `norm(x.requires_grad_())`.",
        issues=(183825,),
        source=f"{_NORM}; fixed by pull request 183893",
        until=(2, 12),
        fixed=(2, 13),
    ),
    Hazard(
        "MPS638",
        "Layer norm of rows whose mean is far above their spread",
        ("native_layer_norm",),
        Check.CANCELLING_LAYER_NORM,
        Outcome.WRONG,
        what="a layer norm takes the variance of a row as E[x²] - E[x]² in float32, which is rounding where the mean "
        "is hundreds of times the spread: rows of mean 1,000 and spread 1 are off by 0.3, and a variance below 1e-6 "
        "counts as 0",
        fix="Subtract the mean first: `norm(x - x.mean(-1, keepdim=True))`.",
        issues=(190491, 186367),
        source=f"{_NORM}; fixed by pull request 190492",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS639",
        "Group norm of groups whose mean is far above their spread",
        ("native_group_norm",),
        Check.CANCELLING_GROUP_NORM,
        Outcome.WRONG,
        what="a group norm takes the variance of a group as E[x²] - E[x]² in float32, which is rounding where the mean "
        "is hundreds of times the spread: the result is off, or NaN where the difference is negative",
        fix="Subtract the mean of each group first.",
        issues=(190491,),
        source="the kernel group_norm of the macOS wheel of torch 2.13, pull request 183830",
        since=(2, 13),
        until=(2, 13),
    ),
    # pooling
    Hazard(
        "MPS630",
        "Adaptive max pool with uneven windows",
        ("adaptive_max_pool2d", "adaptive_max_pool2d_backward"),
        Check.UNEVEN_WINDOWS,
        Outcome.WRONG,
        what="an adaptive max pool uses windows of one size and distance: values, indices and gradients are wrong "
        "where input size modulo output size is 2 or more, and the result is too small where the output is larger "
        "than the input",
        fix="Choose a size that divides the input's, or pool on the CPU: `pool(x.cpu()).to(x.device)`.",
        issues=(190064, 169738),
        source="aten/src/ATen/native/mps/operations/AdaptivePooling.mm; seen in nightly builds of 2.10 and in 2.13.0; "
        "the adaptive windows of pull request 189659 are in the kernels of the wheels since 2.14",
        until=(2, 13),
        fixed=(2, 14),
    ),
    # norms of mixed dtypes
    Hazard(
        "MPS634",
        "Layer norm in half precision with float32 weights",
        ("native_layer_norm",),
        Check.MIXED_LAYER_NORM,
        Outcome.WRONG,
        what="a layer norm reads its weight and bias as its input's dtype, even if theirs is another: the result is "
        "garbage",
        fix="Cast the layer to its input's dtype, or the input to float32: `norm(x.float()).to(x.dtype)`. Autocast "
        "does the latter for you.",
        issues=(190054,),
        source=f"{_NORM}; measured with 2.13.0; fixed by pull request 190055",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS635",
        "Gradients of a layer norm in half precision with float32 weights",
        ("native_layer_norm_backward",),
        Check.MIXED_LAYER_NORM_BACKWARD,
        Outcome.ABORTS,
        what="the backward of a layer norm whose weight has another dtype than its input ends the process",
        fix="Cast the layer to its input's dtype, or the input to float32: `norm(x.float()).to(x.dtype)`. Autocast "
        "does the latter for you.",
        issues=(190054,),
        source=f"{_NORM}; measured with 2.13.0; fixed by pull request 190055",
        until=(2, 13),
        fixed=(2, 14),
        text="anymps: the backward of a layer norm whose weight has another dtype than its input ends the process on a "
        "Mac ('mps.multiply' op requires the same element type, pytorch issue 190054); this exception is anymps' own. "
        "Cast the layer to its input's dtype, or the input to float32.",
    ),
    Hazard(
        "MPS636",
        "Batch norm in half precision with float32 weights or statistics",
        (*_BATCH_NORMS, "_native_batch_norm_legit_no_training"),
        Check.MIXED_BATCH_NORM,
        Outcome.ABORTS,
        what="a batch norm whose weight or running statistics have another dtype than its input ends the process",
        fix="Cast the layer to its input's dtype, or use torch 2.12 or newer.",
        issues=(154887, 178770),
        source=f"{_NORM}; fixed by pull request 178775",
        until=(2, 11),
        fixed=(2, 12),
        text="anymps: a batch norm whose weight or running statistics have another dtype than its input ends the "
        "process on a Mac (MPSGraph: `output type and mean type are not broadcast compatible`, pytorch issue "
        "154887); this exception is anymps' own. Cast the layer to its input's dtype.",
    ),
    # recurrent
    Hazard(
        "MPS631",
        "Dropout between the layers of an LSTM",
        ("lstm",),
        Check.LSTM_DROPOUT,
        Outcome.WRONG,
        what="an LSTM with several layers and dropout drops the same elements in every call, and may also drop "
        "elements in eval()",
        fix="Use single-layer LSTMs with `nn.Dropout` between them.",
        issues=(180744, 173640),
        source=f"{_LSTM}; fixed by pull request 185351",
        until=(2, 12),
        fixed=(2, 13),
    ),
    Hazard(
        "MPS632",
        "Backward of an LSTM with dropout between its layers",
        ("lstm",),
        Check.LSTM_DROPOUT_BACKWARD,
        Outcome.WRONG,
        what="the backward of an LSTM with several layers and dropout ignores what was dropped (and dropout=1.0 gives "
        "NaN)",
        fix="Use single-layer LSTMs with `nn.Dropout` between them.",
        issues=(190056, 190057),
        source=f"{_LSTM}; fixed by pull request 190059",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS633",
        "Backward of an LSTM over a strided input",
        ("lstm",),
        Check.LSTM_STRIDED,
        Outcome.WRONG,
        what="the gradient of an LSTM's input is wrong if the input is not contiguous",
        fix="Pass `x.contiguous()`.",
        issues=(175189,),
        source=_LSTM,
        until=(2, 12),
    ),
    # attention
    Hazard(
        "MPS641",
        "Attention with values of another width",
        ("scaled_dot_product_attention",),
        Check.VALUE_WIDTH,
        Outcome.WRONG,
        what="attention whose values have another last dimension than its queries gives a result of the queries' "
        "width, with garbage in it",
        fix="Pad the values to the queries' width and cut the result, or use torch 2.12 or newer.",
        issues=(176767,),
        source=f"{_ATTENTION}; fixed by pull request 176843",
        until=(2, 11),
        fixed=(2, 12),
    ),
    Hazard(
        "MPS642",
        "Causal attention in half precision",
        ("scaled_dot_product_attention",),
        Check.CAUSAL_HALF,
        Outcome.MAY_BE_WRONG,
        what="causal attention in float16 or bfloat16 without gradients can mask once for four queries, which then "
        "see up to three future tokens",
        fix="Pass the mask instead of is_causal=True: `attn_mask=torch.ones(L, L, dtype=torch.bool, "
        "device=q.device).tril()`.",
        issues=(195910,),
        source=f"{_ATTENTION} (prefill kernel, pull request 181575)",
        since=(2, 13),
        until=(2, 14),
    ),
    Hazard(
        "MPS643",
        "Attention kernel with dropout",
        ("_scaled_dot_product_attention_math_for_mps",),
        Check.DROPOUT,
        Outcome.RAISES,
        what="the attention kernel of mps does not support dropout",
        fix="Call torch.nn.functional.scaled_dot_product_attention, which takes another path with dropout.",
        issues=(),
        source=f"{_ATTENTION}, C strings of the wheels",
        since=OPERATOR_LIMITS["sdpa dropout"].since,
        until=(2, 15),
        text=OPERATOR_LIMITS["sdpa dropout"].text,
    ),
    Hazard(
        "MPS644",
        "Attention mask that differs by sample",
        ("scaled_dot_product_attention",),
        Check.MASK_BY_BATCH,
        Outcome.WRONG,
        what="attention over up to 8 queries without gradients uses another sample's mask if the mask is broadcast "
        "over heads or samples, as a padding mask is while a model generates text",
        fix="Expand the mask to all heads: `mask.expand(-1, heads, -1, -1).contiguous()`, or use torch 2.13 or newer.",
        issues=(),
        source=f"{_ATTENTION}; pytorch pull request 184180, which fixes it",
        until=(2, 12),
        fixed=(2, 13),
    ),
)
