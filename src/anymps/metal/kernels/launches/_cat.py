"""Tensors joined along a dimension.

Source: `cat_out_mps` in `aten/src/ATen/native/mps/operations/Shape.mm` of the pytorch tree, at a state with the
arguments that the kernels of torch 2.13's wheel describe. A launch for each tensor, a thread for each of its elements;
the kernel also casts.
"""

from __future__ import annotations

from typing import Any

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import MOST_32, NAMES, UNSIGNED

_NAMES = {**NAMES, **UNSIGNED}


def _cat(call: Call) -> Work | None:
    tensors = [one for one in call.given["tensors"] if one.numel()]
    if not call.is_read or call.written or call.foreign or not tensors:
        return None
    if any(one.is_conj() or one.is_neg() for one in tensors):
        return None
    try:
        shape: torch.Tensor = torch.cat([one.to("meta") for one in call.given["tensors"]], call.given["dim"])
    except (RuntimeError, IndexError, TypeError):
        return None  # the CPU has the words for it
    out = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype, device="cpu")
    small = all(one.numel() <= MOST_32 for one in (*tensors, out))
    dim = call.given["dim"] % out.dim()
    shared = {"ndim": out.dim(), "cat_dim": dim, "output_strides": out.stride(), "output_sizes": list(out.shape)}
    launches, before = [], 0
    for one in tensors:
        name = f"cat_{'int32_t' if small else 'int64_t'}_{_NAMES.get(one.dtype)}_{_NAMES.get(out.dtype)}"
        params: dict[str, Any] = {"cat_dim_offset": before, "input_element_offset": 0}
        params |= {"input_strides": one.stride(), "input_sizes": list(one.shape)}
        launches.append(Launch(name, (one, out, shared, params), (one.numel(),)))
        before += one.shape[dim]
    return Work((out,), tuple(launches), kept=True)


CAT: dict[str, Describe] = {"cat": _cat}
