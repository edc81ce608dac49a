"""Operators that look up places: bags of embeddings, and windows whose largest number counts.

Source: `ATen/native/mps/kernels/EmbeddingBag.h` and `Pooling.h` of torch 2.13's wheel. The host gives the adaptive pool
windows of one size, as if all were equally far apart (pytorch issue 190064); the kernel of the bags takes an index that
is one too large for the last row (issue 189971). Both are so on a Mac, and therefore here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES

_MAX = 2  # EmbeddingBagMode
_ERRORS = 9  # the slot of the error buffer


def _embedding_bag(call: Call) -> Work | None:
    weight, indices, offsets = (call.given[name] for name in ("weight", "indices", "offsets"))
    scales, mode = call.given.get("per_sample_weights"), call.given["mode"]
    tensors = [weight, indices, offsets, *([] if scales is None else [scales])]
    if not call.is_read_or_older or call.written or call.foreign or not all(one.is_contiguous() for one in tensors):
        return None
    if indices.dim() != 1 or offsets.dim() != 1 or indices.dtype != offsets.dtype or call.given["scale_grad_by_freq"]:
        return None
    name = call.first([f"embedding_bag_{NAMES.get(weight.dtype)}_{NAMES.get(indices.dtype)}"])
    bags = offsets.numel() - int(call.given["include_last_offset"])
    features = weight.shape[1]
    if name is None or not indices.numel() or bags <= 0 or features == 0:
        return None
    out = torch.zeros(bags, features, dtype=weight.dtype, device="cpu")
    bag_of, size_of = (torch.zeros(count, dtype=indices.dtype, device="cpu") for count in (indices.numel(), bags))
    largest = torch.zeros((bags, features) if mode == _MAX else (bags,), dtype=indices.dtype, device="cpu")
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


def _adaptive_max_pool2d(call: Call) -> Work | None:
    x, size = call.given["self"], call.given["output_size"]
    sizes: Sequence[int] = x.shape[-2:]
    if not call.is_read_or_older or call.written or x.dim() not in (3, 4) or not x.numel():
        return None
    if any(large < small or small <= 0 for large, small in zip(sizes, size, strict=True)):
        return None
    name = call.first([f"max_pool_{NAMES.get(x.dtype)}"])
    if name is None:
        return None
    strides = [large // small for large, small in zip(sizes, size, strict=True)]
    windows = [large - (small - 1) * step for large, small, step in zip(sizes, size, strides, strict=True)]
    out = torch.empty((*x.shape[:-2], *size), dtype=x.dtype, device="cpu")
    places = torch.empty(out.shape, dtype=torch.int64, device="cpu")
    params = {
        "dims": x.dim(),
        "pooling_dims": 2,
        "kernel_size": windows,
        "stride": strides,
        "padding": [0, 0],
        "dilation": [1, 1],
        "return_indices": True,
    }
    if call.release > (2, 13):  # the kernel then finds each window's ends itself: wheels of torch 2.14.1 and 2.15.0
        params["adaptive"] = True
    for word, tensor in (("input", x), ("output", out), ("indices", places)):
        params |= {f"{word}_sizes": list(tensor.shape), f"{word}_strides": list(tensor.stride())}
    return Work((out, places), (Launch(name, (x, out, places, params), (out.numel(),)),))


LOOKUPS: dict[str, Describe] = {
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "adaptive_max_pool2d": _adaptive_max_pool2d,
}
