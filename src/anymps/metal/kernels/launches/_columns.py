"""Windows of an image as columns and back, and the gradients of bags of embeddings.

Source: `aten/src/ATen/native/mps/operations/Im2Col.mm`, `Col2Im.mm` and `EmbeddingBag.mm` of the pytorch tree, and the
arguments that the kernels of torch 2.13's wheel describe.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.metal.kernels.launches._types import NAMES

_GROUP, _LANES, _MOST = 64, 32, 1024
_MAX = 2  # EmbeddingBagMode


def _windows(call: Call, height: int, width: int) -> list[int] | None:
    """How many windows there are along each dimension; None if the settings are not those of two."""
    found = []
    for at, size in enumerate((height, width)):
        settings = [call.given[name] for name in ("kernel_size", "dilation", "padding", "stride")]
        if any(len(one) != 2 for one in settings) or settings[3][at] <= 0:
            return None
        kernel, dilation, padding, stride = (int(one[at]) for one in settings)
        found.append((size + 2 * padding - (dilation * (kernel - 1) + 1)) // stride + 1)
    return found if min(found) > 0 else None


def _turned(sizes: Sequence[int]) -> list[int]:
    """The width before the height."""
    return [int(one) for one in reversed(sizes)]


def _im2col(call: Call) -> Work | None:
    x = call.given["self"]
    windows = _windows(call, *x.shape[-2:]) if x.dim() in (3, 4) else None
    name = call.first([f"im2col_{NAMES.get(x.dtype)}_u32"])
    if not call.is_read_or_older or call.written or call.foreign or windows is None or name is None or not x.numel():
        return None
    kernel, dilation, padding, stride = (call.given[one] for one in ("kernel_size", "dilation", "padding", "stride"))
    image = x if x.dim() == 4 else x.unsqueeze(0)
    batch, planes = image.shape[:2]
    length = windows[0] * windows[1]
    out = torch.empty((batch, planes * kernel[0] * kernel[1], length), dtype=x.dtype, device="cpu")
    buffers = (
        *(x, out, [*_turned(kernel), *_turned(dilation)], [*_turned(padding), *_turned(stride)]),
        *(_turned(image.stride()), [*_turned(out.stride()), windows[1]], _turned(image.shape)),
    )
    launch = Launch(name, buffers, (length, planes, batch), (_GROUP, 1, 1))
    return Work((out if x.dim() == 4 else out.squeeze(0),), (launch,))


def _col2im(call: Call) -> Work | None:
    x, (height, width) = call.given["self"], call.given["output_size"]
    windows = _windows(call, height, width) if x.dim() in (2, 3) else None
    name = call.first([f"col2im_kernel_{NAMES.get(x.dtype)}_u32"])
    if not call.is_read_or_older or call.written or call.foreign or windows is None or name is None or not x.numel():
        return None
    kernel, dilation, padding, stride = (call.given[one] for one in ("kernel_size", "dilation", "padding", "stride"))
    columns = x if x.dim() == 3 else x.unsqueeze(0)
    batch, planes = columns.shape[0], columns.shape[1] // (kernel[0] * kernel[1])
    if columns.shape[1] % (kernel[0] * kernel[1]) or columns.shape[2] != windows[0] * windows[1]:
        return None
    out = torch.empty((batch, planes, height, width), dtype=x.dtype, device="cpu")
    first, *inner = columns.stride()
    settings = [list(one) for one in ((height, width), kernel, padding, stride, dilation, windows)]
    across = min(width, _LANES)
    group = (across, min(height, _MOST // across), 1)
    buffers = (x, out, first, planes, *settings, out.stride(0), inner)
    launch = Launch(name, buffers, (width, height, batch * planes), group)
    return Work((out if x.dim() == 3 else out.squeeze(0),), (launch,))


def _bag_gradient(call: Call) -> Work | None:
    gradient, indices, bags, sizes, largest = (
        call.given[name] for name in ("grad", "indices", "offset2bag", "bag_size", "maximum_indices")
    )
    scales, mode = call.given["per_sample_weights"], call.given["mode"]
    name = call.first([f"embedding_bag_backward_{NAMES.get(gradient.dtype)}_{NAMES.get(indices.dtype)}"])
    if not call.is_read_or_older or call.written or call.foreign or name is None or call.given["scale_grad_by_freq"]:
        return None
    if not all(one.is_contiguous() for one in (indices, bags)) or not indices.numel() or not gradient.numel():
        return None
    if bags.numel() != indices.numel() or not sizes.any():
        return None  # what the CPU leaves out in its own forward
    features = gradient.shape[1]
    out = torch.zeros((call.given["num_weights"], features), dtype=gradient.dtype, device="cpu")
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


def _scale_gradient(call: Call) -> Work | None:
    gradient, weight, indices, bags = (call.given[name] for name in ("grad", "weight", "indices", "offset2bag"))
    types = f"{NAMES.get(gradient.dtype)}_{NAMES.get(indices.dtype)}"
    name = call.first([f"embedding_bag_per_sample_weights_backward_{types}"])
    if not call.is_read_or_older or call.written or call.foreign or name is None or not indices.numel():
        return None
    if not all(one.is_contiguous() for one in (indices, bags)) or bags.numel() != indices.numel():
        return None
    out = torch.zeros(indices.numel(), dtype=gradient.dtype, device="cpu")
    params = {
        "output_grad_strides": gradient.stride(),
        "weight_strides": weight.stride(),
        "per_sample_weights_grad_stride": out.stride(0),
        "feature_size": gradient.shape[1],
        "padding_idx": call.given["padding_idx"],
    }
    launch = Launch(name, (gradient, weight, indices, bags, out, params), (indices.numel() * gradient.shape[1],))
    return Work((out,), (launch,), kept=True, made=(Made(out, "zeros"),))


COLUMNS: dict[str, Describe] = {
    "im2col": _im2col,
    "col2im": _col2im,
    "_embedding_bag_dense_backward": _bag_gradient,
    "_embedding_bag_backward": lambda call: None if call.given["sparse"] else _bag_gradient(call),
    "_embedding_bag_per_sample_weights_backward": _scale_gradient,
}
