"""Sorts along a dimension: of all numbers, for the largest `k`, or for the one at a place.

Source: `aten/src/ATen/native/mps/operations/Sort.mm` of the pytorch tree, at a state whose kernels are those of torch
2.13's wheel. A group of threads sorts a block, four numbers a thread. Rows of several blocks are merged pairwise, or
sorted by their bits, four or eight a pass. The kernels take rows along the last dimension; others are copied. Torch
2.15 sorts floats of one block as integers of the same order, unless the sort must be stable (sort_out_mps_impl in its
wheel's libtorch_cpu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work
from anymps.kernels.launches._elements import NAMES, UNSIGNED

_A_THREAD, _LANES, _MOST = 4, 32, 1024
_MOST_SHORT = 65_536  # numbers of a row that 16 bits count
_FUSED_BLOCKS, _FUSED_WORK = 4, 128  # blocks whose counts are added up by the kernel that counts, or that moves
_LONGEST = 2**31 - 1
_KEYS = (2, 15)  # the first release that sorts floats of one block as integers
_NAMES = {**NAMES, **UNSIGNED}


@dataclass(frozen=True)
class _Rows:
    """What is sorted: rows of `count` numbers, as they lie, and where values and places go.

    `chosen` are the first rank that is written and how many; without it all are.
    """

    call: KernelCall
    x: torch.Tensor
    count: int
    strides: tuple[int, int]  # between numbers of a row, between rows
    values: torch.Tensor
    places: torch.Tensor
    descending: bool
    stable: bool
    chosen: tuple[int, int] | None = None
    direct: bool = True  # whether the last kernel writes the results, and no copy
    as_keys: bool = False  # whether the release sorts floats of one block as integers

    @property
    def rows(self) -> int:
        return self.x.numel() // self.count

    @property
    def topk(self) -> str:
        return "_topk" * (self.chosen is not None)

    @property
    def short(self) -> str:
        return "_u16" * (self.direct and self.count <= _MOST_SHORT)

    def selection(self) -> tuple[Any, ...]:
        """The last argument of the kernels that choose."""
        return () if self.chosen is None else (list(self.chosen),)


_Passed = tuple[list[Launch], tuple[torch.Tensor, torch.Tensor]]
"""Launches, and where the values and places of the last one are."""


def _width(count: int, size: int, rows: int) -> int:
    """Threads of a group: a power of two; fewer for one or two long rows, and for numbers of eight bytes."""
    wanted = -(-count // _A_THREAD)
    if rows <= 2 and count > 2048:
        blocks = max(1, 4 // rows)
        wanted = min(wanted, max(2048, -(-count // blocks)) // _A_THREAD)
    width = _LANES
    while width < min(wanted, _MOST):
        width *= 2
    return min(width, 512 if rows <= 256 else 256) if size > 4 else width


def _by_bits(count: int, x: torch.Tensor, block: int, rows: int) -> bool:
    """Whether the host sorts by bits, in a fixed number of passes, and does not merge."""
    size = x.element_size()
    if size > 4:
        return False
    if x.is_floating_point() and size == 2 and count >= 2048:
        return True
    if rows >= 256:
        return False
    rounds = (-(-count // block) - 1).bit_length()
    return 3 * (4 if size == 4 else 2) <= 2 * (1 + rounds) + 2


def _single(rows: _Rows, width: int) -> list[Launch]:
    """One block a row."""
    if rows.as_keys and rows.x.is_floating_point() and not rows.stable:
        name = f"sort_block_fkey_{_NAMES[rows.x.dtype]}_tptg{width}"
        chosen = list(rows.chosen or (0, rows.count))
        given = (rows.x, rows.values, rows.places, rows.count, list(rows.strides), rows.descending, chosen)
        return [Launch(name, given, (width, rows.rows, 1), (width, 1, 1))]
    stable = "_stable" * (rows.stable and rows.chosen is None)
    name = f"sort_block{rows.topk}_{_NAMES[rows.x.dtype]}_tptg{width}{stable}"
    buffers = (rows.x, rows.values, rows.places, rows.count, list(rows.strides), rows.descending, *rows.selection())
    return [Launch(name, buffers, (width, rows.rows, 1), (width, 1, 1))]


def _merged(rows: _Rows, width: int, keyed: bool) -> _Passed:
    """Blocks that are sorted each by itself, and merged two by two; floats as integers of the same order if `keyed`."""
    x, count, dtype = rows.x, rows.count, rows.x.dtype
    blocks = -(-count // (width * _A_THREAD))
    of, end = _NAMES[dtype], f"tptg{width}{rows.short}"
    key = "_fkey" * keyed
    merge = f"mb_merge_{'uint' if keyed else of}_{end}"
    final = f"mb_merge_final{rows.topk}{key}_{of}_{end}"
    shape = (rows.rows, count)
    values = [rows.call.empty(shape, torch.int32 if keyed else dtype) for _ in range(2 if blocks > 1 else 1)]
    places = [rows.call.empty(shape, torch.int16 if rows.short else torch.int32) for _ in values]
    threads, group = (blocks * width, rows.rows, 1), (width, 1, 1)
    stable = "_stable" * (rows.stable and not keyed)
    first = (x, values[0], places[0], count, list(rows.strides), rows.descending)
    launches = [Launch(f"mb_sort_block{key}_{of}_{end}{stable}", first, threads, group)]
    tiles, at = 2, 0
    found = values[0], places[0]
    while tiles // 2 < blocks:
        last = rows.direct and tiles >= blocks
        found = (rows.values, rows.places) if last else (values[1 - at], places[1 - at])
        down = rows.descending and (last or not keyed)  # keys hold the direction already
        given = (values[at], places[at], *found, [count, tiles, blocks], down)
        more = rows.selection() if last else ()
        launches.append(Launch(final if last else merge, (*given, *more), threads, group))
        tiles, at = 2 * tiles, 1 - at
    return launches, found


def _passes(rows: _Rows) -> _Passed:
    """A count of the digits of each block, their places, and a move of the numbers, for each digit from the last on."""
    x, count, size = rows.x, rows.count, rows.x.element_size()
    bits = 4 if size == 1 else 8
    many = size == 2 and rows.rows >= 32
    width = 1024 if size == 2 and not many else 512
    blocks = -(-count // (width * (8 if size == 1 else 4)))
    of = f"{_NAMES[x.dtype]}_{bits}bit"
    end = f"{'_tptg512' * many}{rows.short}"
    counts_all = blocks <= _FUSED_BLOCKS and not many
    fused = "fused_" * (not counts_all and blocks <= _FUSED_BLOCKS and blocks**2 * rows.rows <= _FUSED_WORK)
    shape = (rows.rows, count)
    keys = [rows.call.empty(shape, x.dtype) for _ in range(2)]
    places = [rows.call.empty(shape, torch.int16 if rows.short else torch.int32) for _ in range(2)]
    entries = (1 << bits) * blocks
    counts = rows.call.empty((rows.rows, entries), torch.int32)
    many_groups, group = (blocks * width, rows.rows, 1), (width, 1, 1)
    launches: list[Launch] = []
    found = x, places[0]
    for turn in range(8 * size // bits):
        source = (x if turn == 0 else keys[turn % 2], places[turn % 2])
        last = rows.direct and turn == 8 * size // bits - 1
        found = (rows.values, rows.places) if last else (keys[1 - turn % 2], places[1 - turn % 2])
        dims = [count, blocks, turn * bits]
        counted = (source[0], counts, dims, rows.descending)
        if counts_all:
            launches.append(Launch(f"radix_count_scan_{of}_mb4", counted, (width, rows.rows, 1), group))
        else:
            launches.append(Launch(f"radix_count_{of}{'_tptg512' * many}", counted, many_groups, group))
            if not fused:
                launches.append(Launch("radix_scan", (counts, entries), (_MOST, rows.rows, 1), (_MOST, 1, 1)))
        name = f"radix_scatter_{fused}{f'final{rows.topk}_' * last}{of}{end}"
        more = rows.selection() if last else ()
        buffers = (*source, *found, counts, dims, [rows.descending, turn == 0], *more)
        launches.append(Launch(name, buffers, many_groups, group))
    return launches, found


def _flat(x: torch.Tensor, count: int) -> tuple[torch.Tensor, tuple[int, int]]:
    """Rows along the last dimension as they lie, or copied where no two strides tell where they are."""
    try:
        rows = x.view(-1, count)
    except RuntimeError:
        return x.contiguous(), (1, count)
    return rows, (rows.stride(1), rows.stride(0))


def _along(
    call: KernelCall, x: torch.Tensor, dim: int, values: torch.Tensor, places: torch.Tensor, settings: dict[str, Any]
) -> Work:
    """The launches that fill `values` and `places`, which are dense.

    `settings` are `descending`, `stable` and, where not all ranks are wanted, `chosen`.
    """
    settings = {**settings, "as_keys": call.release >= _KEYS}
    count = x.shape[dim]
    rows = x.numel() // count
    last, chosen = dim == x.dim() - 1, settings.get("chosen")
    width = _width(count, x.element_size(), rows)
    block = width * _A_THREAD
    direct = last or (chosen is not None and chosen[1] == 1)
    moved = x if last else x.movedim(dim, -1).contiguous()
    plain = (1, count)
    results = (values, places)
    if _by_bits(count, x, block, rows):
        given = _Rows(call, moved.contiguous(), count, plain, values, places, direct=direct, **settings)
        launches, found = _passes(given)
    else:
        source, strides = _flat(x, count) if last else (moved, plain)
        given = _Rows(call, source, count, strides, values, places, direct=direct, **settings)
        if count <= block and (last or chosen is not None):
            return Work(results, tuple(_single(given, width)))
        keyed = x.dtype == torch.float32 and count > block and direct
        launches, found = _merged(given, width, keyed)
    if found[0] is values:
        return Work(results, tuple(launches))
    copies = tuple((to, one.view(moved.shape).movedim(-1, dim)) for to, one in zip(results, found, strict=True))
    return Work(results, tuple(launches), copies=copies)


def _dim(call: KernelCall, x: torch.Tensor) -> int | None:
    """The dimension that is sorted; None for a call that no kernel does."""
    dim = call.given["dim"]
    if not call.is_read or call.foreign or not isinstance(dim, int):
        return None
    if not x.dim() or not x.numel() or x.is_complex() or x.is_conj() or x.is_neg() or x.dtype not in _NAMES:
        return None
    return dim % x.dim() if 1 < x.shape[dim] and x.numel() <= _LONGEST else None


def _outs(call: KernelCall, shape: list[int], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return call.empty(shape, x.dtype), call.empty(shape, torch.int64)


def _outs_without(call: KernelCall, x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The values and places of one element along `dim`: fresh, or those to write; None if these do not fit."""
    shape = [1 if at == dim else size for at, size in enumerate(x.shape) if at != dim or call.given["keepdim"]]
    values, places = call.written or _outs(call, shape, x)
    for one in call.written if not values.numel() and not places.numel() else ():
        one.resize_(shape)  # the operator is made of its own `out=` form and empty tensors
    fit = all(list(one.shape) == shape and one.is_contiguous() for one in (values, places))
    return (values, places) if fit and values.dtype == x.dtype else None


def _sort(call: KernelCall) -> Work | None:
    x = call.given["self"]
    dim = _dim(call, x)
    if dim is None or call.written:
        return None
    if not torch.empty_like(x, device="meta").is_contiguous():
        return None  # the host sorts into other memory, and copies
    values, places = _outs(call, list(x.shape), x)
    settings = {"descending": call.given["descending"], "stable": bool(call.given.get("stable"))}
    return _along(call, x, dim, values, places, settings)


def _topk(call: KernelCall) -> Work | None:
    x, k = call.given["self"], call.given["k"]
    dim = _dim(call, x)
    if dim is None or call.written or not 0 < k <= x.shape[dim]:
        return None
    settings = {"descending": call.given["largest"], "stable": False, "chosen": (0, k)}
    moved = x if dim == x.dim() - 1 else x.movedim(dim, -1).contiguous()
    values, places = _outs(call, [*moved.shape[:-1], k], x)
    work = _along(call, moved, moved.dim() - 1, values, places, settings)
    if moved is x:
        return work
    shape = list(x.shape)
    shape[dim] = k
    results = _outs(call, shape, x)
    pairs = zip(results, (values, places), strict=True)
    return Work(results, work.launches, copies=tuple((to, one.movedim(-1, dim)) for to, one in pairs))


def _kth(call: KernelCall) -> Work | None:
    x, k = call.given["self"], call.given["k"]
    dim = _dim(call, x)
    if dim is None or not 0 < k <= x.shape[dim] or torch.are_deterministic_algorithms_enabled():
        return None
    outs = _outs_without(call, x, dim)
    settings = {"descending": False, "stable": False, "chosen": (k - 1, 1)}
    return None if outs is None else _along(call, x, dim, *outs, settings)


SORTS: dict[str, Describe] = {
    "sort": _sort,
    "topk": _topk,
    "kthvalue": _kth,
}
