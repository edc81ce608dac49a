"""Windows added up where they overlap: columns of an image, and the gradient of windows.

Source: `aten/src/ATen/native/mps/operations/Col2Im.mm` and `UnfoldBackward.mm` of the pytorch tree, and the arguments
that the kernels of torch 2.13's wheel describe.
"""

from __future__ import annotations

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Made, Work
from anymps.kernels.launches._elements import have_numbers
from anymps.kernels.launches._types import NAMES

_LANES, _MOST = 32, 1024


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


def _col2im(call: Call) -> Work | None:
    x, (height, width) = call.given["self"], call.given["output_size"]
    windows = _windows(call, height, width) if x.dim() in (2, 3) else None
    name = f"col2im_kernel_{NAMES.get(x.dtype)}_u32"
    if not call.is_read_or_older or call.written or call.foreign or windows is None or not x.numel():
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


def _unfold_backward(call: Call) -> Work | None:
    gradient, shape = call.given["grad_in"], call.given["input_sizes"]
    name = f"unfold_backward_{NAMES.get(gradient.dtype)}"
    plain = call.is_read and not call.written and not call.foreign and have_numbers((gradient,))
    if not plain or not shape or 0 in shape:
        return None
    out = torch.zeros(shape, dtype=gradient.dtype, device="cpu")
    settings = [call.given["dim"] % len(shape), call.given["size"], call.given["step"], len(shape)]
    buffers = (gradient, out, gradient.stride(), list(shape), out.stride(), settings)
    return Work((out,), (Launch(name, buffers, (out.numel(),)),), kept=True, made=(Made(out, "zeros"),))


FOLDS: dict[str, Describe] = {"col2im": _col2im, "unfold_backward": _unfold_backward}
