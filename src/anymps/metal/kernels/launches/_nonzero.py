"""Where elements are not zero, and places that are named several times.

Source: `nonzero_impl_mps` in `aten/src/ATen/native/mps/operations/Indexing.mm` and `Repeat.mm` of the pytorch tree, at
states with the arguments that the kernels of torch 2.13's wheel describe. The host reads how many there are before it
makes the result; so does this.
"""

from __future__ import annotations

import torch

from anymps.metal.kernels.launches._call import Call, Describe, Launch, Work
from anymps.metal.kernels.launches._types import NAMES

_MOST, _LANES = 1024, 32  # threads of a group, of a SIMD group
_COUNTS = {torch.int32: "int32_t", torch.int64: "int64_t"}


def _launches(x: torch.Tensor, out: torch.Tensor) -> tuple[Launch, ...]:
    """A count within each block, the counts of the blocks added up, and the places of each element that counts."""
    of, count = NAMES.get(x.dtype), x.numel()
    first, second = (f"{word}_{of}" for word in ("count_nonzero_prefix_sum", "scatter_nonzero_indices"))
    blocks = -(-count // _MOST)
    before, sums, offsets, total = (
        torch.empty(size, dtype=torch.int32, device="cpu") for size in (count, blocks, blocks, 1)
    )
    width = min(_MOST, -(-blocks // _LANES) * _LANES)
    group = (min(_MOST, count),)
    return (
        Launch(first, (x, before, sums), (count,), group),
        Launch("prefix_sum_blocks", (sums, offsets, total, blocks), (width,), (width,)),
        Launch(second, (x, before, out, x.dim(), list(x.shape), offsets, out.shape[0]), (count,), group),
    )


def _nonzero(call: Call) -> Work | None:
    x = call.given["self"]
    if not call.is_read or call.written or call.foreign or not x.dim() or not x.numel():
        return None
    if x.is_conj() or x.is_neg():
        return None
    x = x.contiguous()
    if "size" in call.given:
        out = torch.full((call.given["size"], x.dim()), call.given["fill_value"], dtype=torch.int64, device="cpu")
    else:
        out = torch.empty((int(torch.count_nonzero(x)), x.dim()), dtype=torch.int64, device="cpu")
    return Work((out,), _launches(x, out)) if out.numel() else None


def _repeat_interleave(call: Call) -> Work | None:
    repeats = call.given.get("repeats")
    if not call.is_read or call.written or call.foreign or not isinstance(repeats, torch.Tensor):
        return None
    if "self" in call.given or repeats.dtype not in _COUNTS or repeats.dim() != 1 or not repeats.numel():
        return None
    ends = repeats.cumsum(0)
    total = int(ends[-1])
    if bool((repeats < 0).any()) or not total or call.given["output_size"] not in (None, total):
        return None
    out = torch.empty(total, dtype=repeats.dtype, device="cpu")
    name = f"repeat_interleave_{_COUNTS[repeats.dtype]}"
    return Work((out,), (Launch(name, (repeats, ends, out, repeats.stride(0)), (repeats.numel(),)),))


NONZERO: dict[str, Describe] = {
    "nonzero": _nonzero,
    "nonzero_static": _nonzero,
    "repeat_interleave": _repeat_interleave,
}
