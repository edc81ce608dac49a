"""Bags of embeddings, forward and backward.

Source: `aten/src/ATen/native/mps/operations/EmbeddingBag.mm` of the pytorch tree, and the arguments that the kernels of
torch 2.13's wheel describe.
"""

from __future__ import annotations

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES

_MAX = 2  # EmbeddingBagMode
_ERRORS = 9  # the slot of the error buffer


def _embedding_bag(call: KernelCall) -> Work | None:
    weight, indices, offsets = (call.given[name] for name in ("weight", "indices", "offsets"))
    scales, mode = call.given.get("per_sample_weights"), call.given["mode"]
    tensors = [weight, indices, offsets, *([] if scales is None else [scales])]
    if not call.is_read_or_older or call.written or call.foreign or not all(one.is_contiguous() for one in tensors):
        return None
    if indices.dim() != 1 or offsets.dim() != 1 or indices.dtype != offsets.dtype or call.given["scale_grad_by_freq"]:
        return None
    name = f"embedding_bag_{NAMES.get(weight.dtype)}_{NAMES.get(indices.dtype)}"
    bags = offsets.numel() - int(call.given["include_last_offset"])
    features = weight.shape[1]
    if not indices.numel() or bags <= 0 or features == 0:
        return None
    out = call.zeros((bags, features), weight.dtype)
    bag_of, size_of = (call.zeros([count], indices.dtype) for count in (indices.numel(), bags))
    largest = call.zeros((bags, features) if mode == _MAX else (bags,), indices.dtype)
    params = {
        "weight_strides": weight.stride(),
        "output_strides": out.stride(),
        "max_indices_strides": largest.stride() if mode == _MAX else (0, 0),
        "use_per_sample_weights": scales is not None,
        "per_sample_weights_stride": 0 if scales is None else scales.stride(0),
        "num_indices": indices.numel(),
        "num_bags": bags,
        "feature_size": features,
        "num_weights": weight.shape[0],
        "mode": mode,
        "padding_idx": call.given["padding_idx"],
    }
    buffers = (weight, indices, offsets, scales, out, bag_of, size_of, largest, params)
    return Work((out, bag_of, size_of, largest), (Launch(name, buffers, (out.numel(),), None, _ERRORS),))


def _bag_gradient(call: KernelCall) -> Work | None:
    gradient, indices, bags, sizes, largest = (
        call.given[name] for name in ("grad", "indices", "offset2bag", "bag_size", "maximum_indices")
    )
    scales, mode = call.given["per_sample_weights"], call.given["mode"]
    name = f"embedding_bag_backward_{NAMES.get(gradient.dtype)}_{NAMES.get(indices.dtype)}"
    if not call.is_read_or_older or call.written or call.foreign or call.given["scale_grad_by_freq"]:
        return None
    if not all(one.is_contiguous() for one in (indices, bags)) or not indices.numel() or not gradient.numel():
        return None
    if bags.numel() != indices.numel() or not sizes.any():
        return None  # what the CPU leaves out in its own forward
    features = gradient.shape[1]
    out = call.zeros((call.given["num_weights"], features), gradient.dtype)
    params = {
        "weight_grad_strides": out.stride(),
        "output_grad_strides": gradient.stride(),
        "max_indices_strides": largest.stride() if mode == _MAX else (0, 0),
        "use_per_sample_weights": scales is not None,
        "per_sample_weights_stride": 0 if scales is None else scales.stride(0),
        "feature_size": features,
        "mode": mode,
        "padding_idx": call.given["padding_idx"],
    }
    threads = gradient.numel() if mode == _MAX else bags.numel() * features
    buffers = (gradient, indices, bags, sizes, largest, scales, out, params)
    return Work((out,), (Launch(name, buffers, (threads,)),))


def _scale_gradient(call: KernelCall) -> Work | None:
    gradient, weight, indices, bags = (call.given[name] for name in ("grad", "weight", "indices", "offset2bag"))
    types = f"{NAMES.get(gradient.dtype)}_{NAMES.get(indices.dtype)}"
    name = f"embedding_bag_per_sample_weights_backward_{types}"
    if not call.is_read_or_older or call.written or call.foreign or not indices.numel():
        return None
    if not all(one.is_contiguous() for one in (indices, bags)) or bags.numel() != indices.numel():
        return None
    out = call.zeros([indices.numel()], gradient.dtype)
    params = {
        "output_grad_strides": gradient.stride(),
        "weight_strides": weight.stride(),
        "per_sample_weights_grad_stride": out.stride(0),
        "feature_size": gradient.shape[1],
        "padding_idx": call.given["padding_idx"],
    }
    launch = Launch(name, (gradient, weight, indices, bags, out, params), (indices.numel() * gradient.shape[1],))
    return Work((out,), (launch,))


EMBEDDING_BAGS: dict[str, Describe] = {
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_dense_backward": _bag_gradient,
    "_embedding_bag_backward": lambda call: None if call.given["sparse"] else _bag_gradient(call),
    "_embedding_bag_per_sample_weights_backward": _scale_gradient,
}
