"""Scaled dot product attention: of a few queries in one pass or two, of more by blocks; the rest is MPSGraph's.

Source: `_scaled_dot_product_attention_math_mps` of the pytorch tree's
`aten/src/ATen/native/mps/operations/Attention.mm`, at a state whose kernel names are those of the wheels of torch 2.13
and 2.15. Its third way, by matrix units, needs a chip newer than the virtual ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES

_FEW = 8  # queries
_LONG = 1024  # keys, from which on a few queries take two passes
_SLICES = 32  # of the keys, in two passes
_WIDTHS = {64, 96, 128, 256}  # numbers of a head that the kernels of a few queries know
_BLOCKS = {**dict.fromkeys((32, 64, 72, 80, 96), (32, 32, 4)), 128: (32, 16, 4), 256: (16, 8, 2)}
_LANES = 32
_ONE_PASS, _SLICE = 1024, 256  # threads of a group
_WORDS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def _of_four(x: torch.Tensor) -> torch.Tensor | None:
    """Batches, heads, rows and numbers; None for a view that cannot be taken so."""
    if x.dim() < 3:
        return None
    if x.dim() == 3:
        return x.unsqueeze(0)
    try:
        return x if x.dim() == 4 else x.view(-1, *x.shape[-3:])
    except RuntimeError:
        return None


@dataclass(frozen=True)
class _Heads:
    """Query, key, value and mask of four dimensions."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None
    causal: bool
    scale: float

    @property
    def few_name(self) -> str:
        """How the names of kernels for a few queries end."""
        of, width = NAMES[self.q.dtype], self.q.shape[-1]
        masked = "none" if self.mask is None else NAMES[self.mask.dtype]
        return f"{of}_{width}_{width}_mask{masked}{'_causal' * self.causal}"

    def few_places(self) -> tuple[Any, ...]:
        """What these take last: strides of heads and of rows, the mask and its strides, and those of batches."""
        three, mask = (self.q, self.k, self.v), self.mask
        strides = [0] * 4 if mask is None else [mask.stride(at) if mask.shape[at] > 1 else 0 for at in (3, 2, 1, 0)]
        return (
            self.q.shape[1] // self.k.shape[1],
            self.k.shape[2],
            [one.stride(1) for one in three],
            [one.stride(2) for one in three],
            self.scale,
            mask,
            strides,
            [*(one.stride(0) for one in three), self.q.shape[1]],
        )


def _heads(call: KernelCall) -> _Heads | None:
    """None where a call is for no kernel."""
    query = call.given["query"]
    given = [call.given[name] for name in ("query", "key", "value")]
    mask, asked = call.given["attn_mask"], call.given["scale"]
    if call.written or call.foreign or call.given["dropout_p"] or call.given["dropout_mask"] is not None:
        return None
    if query.dtype not in _WORDS or any(one.dtype != query.dtype or one.is_neg() or not one.numel() for one in given):
        return None
    q, k, v = (_of_four(one) for one in given)
    if q is None or k is None or v is None or q.shape[-1] != v.shape[-1] or q.shape[1] % k.shape[1]:
        return None
    if mask is not None:
        if mask.dtype not in (torch.bool, query.dtype):
            return None
        mask = _of_four(mask.expand(*query.shape[:-1], k.shape[2]))
        if mask is None:
            return None
    q, k, v = (one if one.stride(-1) == 1 else one.contiguous() for one in (q, k, v))
    return _Heads(q, k, v, mask, call.given["is_causal"], 1 / math.sqrt(q.shape[-1]) if asked is None else asked)


def _attention(call: KernelCall) -> Work | None:
    given = _heads(call)
    if given is None:
        return None
    rows, keys, width = given.q.shape[2], given.k.shape[2], given.q.shape[-1]
    if rows <= min(_FEW, keys) and width in _WIDTHS and not (given.causal and given.mask is not None):
        return (_in_two_passes if keys >= _LONG else _in_one_pass)(call, given)
    return _by_blocks(call, given) if rows > _FEW and width in _BLOCKS else None


def _results(call: KernelCall, *results: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """With the query's leading dimensions."""
    before = call.given["query"].shape[:-3]
    return tuple(one.view(*before, *one.shape[1:]) if len(before) != 1 else one for one in results)


def _in_one_pass(call: KernelCall, given: _Heads) -> Work:
    batches, heads, rows, _ = given.q.shape
    out = call.empty(given.q.shape, given.q.dtype)
    weights = call.empty((batches, heads, rows, given.k.shape[2]), given.q.dtype)  # nobody writes them
    buffers = (given.q, given.k, given.v, out, *given.few_places())
    threads = (batches * heads * _ONE_PASS, rows, 1)
    launch = Launch(f"sdpa_vector_{given.few_name}", buffers, threads, (_ONE_PASS, 1, 1))
    return Work(_results(call, out, weights), (launch,))


def _in_two_passes(call: KernelCall, given: _Heads) -> Work:
    dtype = given.q.dtype
    batches, heads, rows, width = given.q.shape
    out = call.empty(given.q.shape, dtype)
    partial = call.empty((batches, heads, rows, _SLICES, width), dtype)
    sums, largest = (call.empty(partial.shape[:-1], torch.float32) for _ in range(2))
    first, second = f"sdpa_vector_2pass_1_{given.few_name}", f"sdpa_vector_2pass_2_{NAMES[dtype]}_{width}"
    buffers = (given.q, given.k, given.v, partial, sums, largest, *given.few_places())
    launches = (
        Launch(first, buffers, (batches * heads * _SLICE, rows, _SLICES), (_SLICE, 1, 1)),
        Launch(second, (partial, sums, largest, out), (batches * heads * _ONE_PASS, rows, 1), (_ONE_PASS, 1, 1)),
    )
    (result,) = _results(call, out)
    return Work((result, partial), launches)


def _by_blocks(call: KernelCall, given: _Heads) -> Work:
    q, k, v, mask = given.q, given.k, given.v, given.mask
    batches, heads, rows, width = q.shape
    height, keys, groups = _BLOCKS[width]
    word = _WORDS[q.dtype]
    masked = word if mask is None or mask.dtype == q.dtype else "bool_"
    shape = f"{word}_bq{height}_bk{keys}_bd{width}_wm{groups}_wn1"
    name = f"prefill_attention_{shape}_hm{int(mask is not None)}_dc{int(given.causal)}_mask{masked}"
    if mask is not None and mask.stride(-1) != 1:
        mask = mask.contiguous()
    out = call.empty(q.shape, q.dtype)
    params = {
        "B": batches,
        "H": heads,
        "D": width,
        "qL": rows,
        "kL": k.shape[2],
        "gqa_factor": heads // k.shape[1],
        "scale": given.scale,
        "softcapping": 1.0,
        **{f"{letter}_strides": list(one.stride()[:3]) for letter, one in zip("QKVO", (q, k, v, out), strict=True)},
    }
    of_mask = None if mask is None else {"M_strides": list(mask.stride())}
    threads = (-(-rows // height) * _LANES, heads * groups, batches)
    launch = Launch(name, (q, k, v, out, params, of_mask, mask), threads, (_LANES, groups, 1))
    (result,) = _results(call, out)
    return Work((result, result), (launch,))


ATTENTION: dict[str, Describe] = {"_scaled_dot_product_attention_math_for_mps": _attention}
