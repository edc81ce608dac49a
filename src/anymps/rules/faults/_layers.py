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
        "the strides of a convolution's weight are ignored: a weight that is a slice or a permuted view is read as "
        "if it were contiguous",
        "Pass `weight.contiguous()`.",
        (192212,),
        f"{_CONVOLUTION}; fixed by pull request 192303",
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
        "a channel slice of a channels_last tensor is read as if it were packed",
        "Make it contiguous: `x[:, :c].contiguous()`.",
        (180984, 174345),
        f"{_CONVOLUTION}; fixed by pull request 180992",
        until=(2, 11),
    ),
    Hazard(
        "MPS623",
        "Convolution kernel of 256 or more",
        ("convolution",),
        Check.WIDE_KERNEL,
        Outcome.WRONG,
        "a convolution whose kernel has 256 or more elements in one dimension gives a wrong result",
        "Split the kernel into pieces below 256, or use `torch.fft`.",
        (188335,),
        f"{_CONVOLUTION}; fixed by pull request 188359",
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
        "the gradient of a convolution's weight is wrong for a minibatch of 65536 or more",
        "Use smaller batches with gradient accumulation.",
        (96225,),
        f"{_CONVOLUTION} (open)",
        low=65536,
        until=(2, 15),
    ),
    Hazard(
        "MPS625",
        "Convolution result of more than 65536 in one dimension",
        ("convolution",),
        Check.LARGE_OUTPUT,
        Outcome.RAISES,
        "before macOS 15.1 no dimension of a convolution's result may be larger than 65536",
        "Update macOS to 15.1, or split the input.",
        (129207,),
        _CONVOLUTION,
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
        "3-D convolution of a contiguous tensor goes through Metal 4 kernels that are wrong on macOS 26.2",
        "Update macOS to 26.3.",
        (197114, 188802),
        _CONVOLUTION,
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
        "the backward of a batch norm reads a channels_last or permuted input in the wrong order: gradients of weight "
        "and input are wrong by orders of magnitude, or the call raises `view size is not compatible with input "
        "tensor's size and stride`",
        "Normalize a contiguous tensor: `norm(x.contiguous())`.",
        (175189, 156792),
        f"{_NORM}; pull request 181411; fixed by pull request 188371",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS628",
        "BatchNorm3d of a permuted tensor",
        _BATCH_NORMS,
        Check.STRIDED_NORM_5D,
        Outcome.ABORTS,
        "batch norm of a 5-D tensor that is not contiguous ends in an uncaught NSRangeException",
        "Normalize a contiguous tensor: `norm(x.contiguous())`.",
        (190645,),
        f"{_NORM} (reported in July 2026, when 2.13 was the newest release)",
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
        "gradients of a layer norm's weight and bias are wrong, and differ from run to run, if its input needs no "
        "gradient",
        "Let the input require one: `norm(x.requires_grad_())`.",
        (183825,),
        f"{_NORM}; fixed by pull request 183893",
        until=(2, 12),
        fixed=(2, 13),
    ),
    # pooling
    Hazard(
        "MPS630",
        "Adaptive max pool with uneven windows",
        ("adaptive_max_pool2d", "adaptive_max_pool2d_backward"),
        Check.UNEVEN_WINDOWS,
        Outcome.WRONG,
        "an adaptive max pool uses windows of one size and distance: values, indices and gradients are wrong where "
        "input size modulo output size is 2 or more, and the result is too small where the output is larger than the "
        "input",
        "Choose a size that divides the input's, or pool on the CPU: `pool(x.cpu()).to(x.device)`.",
        (190064, 169738),
        "aten/src/ATen/native/mps/operations/AdaptivePooling.mm; seen in nightly builds of 2.10 and in 2.13.0; the "
        "adaptive windows of pull request 189659 are in the kernels of the wheels since 2.14",
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
        "a layer norm reads its weight and bias as its input's dtype, even if theirs is another: the result is garbage",
        "Cast the layer to its input's dtype, or the input to float32: `norm(x.float()).to(x.dtype)`. Autocast does "
        "the latter for you.",
        (190054,),
        f"{_NORM}; measured with 2.13.0; fixed by pull request 190055",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS635",
        "Gradients of a layer norm in half precision with float32 weights",
        ("native_layer_norm_backward",),
        Check.MIXED_LAYER_NORM_BACKWARD,
        Outcome.ABORTS,
        "the backward of a layer norm whose weight has another dtype than its input ends the process",
        "Cast the layer to its input's dtype, or the input to float32: `norm(x.float()).to(x.dtype)`. Autocast does "
        "the latter for you.",
        (190054,),
        f"{_NORM}; measured with 2.13.0; fixed by pull request 190055",
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
        "a batch norm whose weight or running statistics have another dtype than its input ends the process",
        "Cast the layer to its input's dtype, or use torch 2.12 or newer.",
        (154887, 178770),
        f"{_NORM}; fixed by pull request 178775",
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
        "an LSTM with several layers and dropout drops the same elements in every call, and may also drop "
        "elements in eval()",
        "Use single-layer LSTMs with `nn.Dropout` between them.",
        (180744, 173640),
        f"{_LSTM}; fixed by pull request 185351",
        until=(2, 12),
        fixed=(2, 13),
    ),
    Hazard(
        "MPS632",
        "Backward of an LSTM with dropout between its layers",
        ("lstm",),
        Check.LSTM_DROPOUT_BACKWARD,
        Outcome.WRONG,
        "the backward of an LSTM with several layers and dropout ignores what was dropped (and dropout=1.0 gives NaN)",
        "Use single-layer LSTMs with `nn.Dropout` between them.",
        (190056, 190057),
        f"{_LSTM}; fixed by pull request 190059",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS633",
        "Backward of an LSTM over a strided input",
        ("lstm",),
        Check.LSTM_STRIDED,
        Outcome.WRONG,
        "the gradient of an LSTM's input is wrong if the input is not contiguous",
        "Pass `x.contiguous()`.",
        (175189,),
        _LSTM,
        until=(2, 12),
    ),
    # attention
    Hazard(
        "MPS641",
        "Attention with values of another width",
        ("scaled_dot_product_attention",),
        Check.VALUE_WIDTH,
        Outcome.WRONG,
        "attention whose values have another last dimension than its queries gives a result of the queries' width, "
        "with garbage in it",
        "Pad the values to the queries' width and cut the result, or use torch 2.12 or newer.",
        (176767,),
        f"{_ATTENTION}; fixed by pull request 176843",
        until=(2, 11),
        fixed=(2, 12),
    ),
    Hazard(
        "MPS642",
        "Causal attention in half precision",
        ("scaled_dot_product_attention",),
        Check.CAUSAL_HALF,
        Outcome.MAY_BE_WRONG,
        "causal attention in float16 or bfloat16 without gradients can mask once for four queries, which then see up "
        "to three future tokens",
        "Pass the mask instead of is_causal=True: `attn_mask=torch.ones(L, L, dtype=torch.bool, "
        "device=q.device).tril()`.",
        (195910,),
        f"{_ATTENTION} (prefill kernel, pull request 181575)",
        since=(2, 13),
        until=(2, 14),
    ),
    Hazard(
        "MPS643",
        "Attention kernel with dropout",
        ("_scaled_dot_product_attention_math_for_mps",),
        Check.DROPOUT,
        Outcome.RAISES,
        "the attention kernel of mps does not support dropout",
        "Call torch.nn.functional.scaled_dot_product_attention, which takes another path with dropout.",
        (),
        f"{_ATTENTION}, C strings of the wheels",
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
        "attention over up to 8 queries without gradients uses another sample's mask if the mask is broadcast over "
        "heads or samples, as a padding mask is while a model generates text",
        "Expand the mask to all heads: `mask.expand(-1, heads, -1, -1).contiguous()`, or use torch 2.13 or newer.",
        (),
        f"{_ATTENTION}; pytorch pull request 184180, which fixes it",
        until=(2, 12),
        fixed=(2, 13),
    ),
)
