"""Operators that go along a dimension and keep every step: sums and products.

Source: `aten/src/ATen/native/mps/operations/ScanKernel.mm` of the pytorch tree, whose kernels are those of the wheels
of torch 2.13 and 2.15, with the same arguments. A group of threads scans a row, or a column of 32 neighbours.

Sums and products may be split over several groups, or a group takes many. On chips from the M3 on, groups of floats
read what the groups before them have summed so far; else partial sums are made first, and carried into each block by a
further launch.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work, empty
from anymps.kernels.launches._elements import NAMES, result_of

_LANES = 32
_MOST = 1024  # threads of a group
_WIDTH = 32  # neighbours that a group takes where it goes across rows
_GROUP = 256
_FLOATS = {torch.float32, torch.float16, torch.bfloat16}
_TYPES = _FLOATS | {torch.int32, torch.int64}
_LONG_ROW, _MOST_ROWS, _LONG_COLUMN, _MOST_GROUPS = 1 << 16, 1024, 1024, 64
_TINY, _MANY, _TINY_TILE = 32, 4096, 2048
_TRANSPOSED = 256  # columns, from which on a transposed tensor is read where it lies
_READS = 16  # of a thread whose group looks back
_COLUMN_READS = {2: 8, 4: 4, 8: 4, 16: 2}  # by how many columns there are


def _scan(call: KernelCall, kernel: str) -> Work | None:
    """Sums and products; of integers in 64 bits."""
    x = call.given["self"]
    whole = kernel != "logcumsumexp" and not (x.is_floating_point() or x.is_complex())
    result = call.given.get("dtype") or (torch.int64 if whole else x.dtype)
    if result != x.dtype and not (whole and result == torch.int64):
        return None
    if x.dtype != result and not (x.dtype == torch.int32 and kernel == "cumsum"):
        x = x.to(result)
    out = result_of(call, x.shape, result)
    if out is None:
        return None
    if kernel != "logcumsumexp" and _is_plain(call, x, out):
        split = split_scan(call, kernel, x, out)
        if split is None or split:
            return None if split is None else Work((out,), split)
    wide = out.element_size() > 4  # half precision is summed in float32
    return _launch(call, kernel, x, out, reads=2 if wide else 4)


def _is_plain(call: KernelCall, x: torch.Tensor, out: torch.Tensor) -> bool:
    return bool(x.dim() and x.numel()) and not (call.foreign or x.is_conj() or x.is_neg()) and out.shape == x.shape


def _launch(call: KernelCall, kernel: str, x: torch.Tensor, out: torch.Tensor, reads: int) -> Work | None:
    if not _is_plain(call, x, out) or not x.is_contiguous() or not out.is_contiguous():
        return None
    dim = call.given["dim"] % x.dim()
    inner = dim == x.dim() - 1
    types = "_".join(dict.fromkeys(NAMES.get(one.dtype, "") for one in (x, out)))
    name = f"{kernel}_{'innermost' if inner else 'outer'}_{types}"
    count, before, after = x.shape[dim], math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    if inner:
        width = _row_width(count, reads)
        return Work((out,), (Launch(name, (x, out, count), (width, before, 1), (width, 1, 1)),))
    blocks = -(-after // _WIDTH)
    width = _WIDTH // reads * _LANES
    places = (count, after, blocks)
    return Work((out,), (Launch(name, (x, out, *places), (width, before * blocks, 1), (width, 1, 1)),))


def _row_width(count: int, reads: int) -> int:
    """Threads of the group of a row: each takes `reads` numbers at once, and loops from 2048 times as many on."""
    if count <= reads * _MOST:
        wanted = count
    elif count <= reads * 2 * _MOST:
        wanted = count // 2
    else:
        return _MOST
    return min(-(-wanted // (reads * _LANES)) * _LANES, _MOST)


def _parts(count: int, size: int) -> int:
    return -(-count // size)


def _up(count: int, to: int) -> int:
    return _parts(count, to) * to


def split_scan(call: KernelCall, kernel: str, x: torch.Tensor, out: torch.Tensor) -> tuple[Launch, ...] | None:
    """The launches; none for a scan that one group does, None where the kernels are not there."""
    if x.dtype not in _TYPES:
        return ()
    dim = call.given["dim"] % x.dim()
    count, after = x.shape[dim], math.prod(x.shape[dim + 1 :])
    before = x.numel() // (count * after)
    types = NAMES[x.dtype] if x.dtype == out.dtype else f"{NAMES[x.dtype]}_{NAMES[out.dtype]}"
    reads = 4 if out.element_size() <= 4 else 2
    inner = dim == x.dim() - 1
    if inner and _is_transposed(x) and out.is_contiguous():
        found = _transposed(kernel, types, x, out, reads)
    elif not x.is_contiguous() or not out.is_contiguous():
        return None
    elif inner and count <= _TINY and before >= _MANY:
        found = _tiny(kernel, types, x, out)
    elif after == 1 and count >= _LONG_ROW and before <= _MOST_ROWS:
        if _looks_back(call, x):
            found = _row_looking_back(kernel, types, x, out, count)
        else:
            found = _row_in_blocks(kernel, types, x, out, count, reads)
    elif after > 1 and count >= _LONG_COLUMN and before * _parts(after, _WIDTH) <= _MOST_GROUPS:
        if _looks_back(call, x) and after in _COLUMN_READS:
            found = _columns_looking_back(kernel, types, x, out, count, after)
        elif 2 <= after <= 8 if x.dtype in _FLOATS else after in (2, 3, 4, 8):
            found = _narrow_in_blocks(kernel, types, x, out, count, after, reads)
        else:
            found = _columns_in_blocks(kernel, types, x, out, count, after, reads)
    else:
        return ()
    return found


def _looks_back(call: KernelCall, x: torch.Tensor) -> bool:
    return x.dtype in _FLOATS and call.looks_back and not torch.are_deterministic_algorithms_enabled()


def _is_transposed(x: torch.Tensor) -> bool:
    """Whether the last dimension is the outermost one in memory, of so many columns that the host takes it as it is."""
    if x.dim() < 2 or x.is_contiguous() or x.numel() // x.shape[-1] < _TRANSPOSED:
        return False
    return x.movedim(-1, 0).is_contiguous()


def _room(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """For sums: half precision is summed in float32."""
    return empty(shape, torch.float32 if x.dtype in _FLOATS else x.dtype)


def _nothing_yet(count: int, filled: int) -> torch.Tensor:
    """What a group that looks back finds where no other has written."""
    return torch.full((count,), filled, dtype=torch.int32, device="cpu")


def _transposed(kernel: str, types: str, x: torch.Tensor, out: torch.Tensor, reads: int) -> tuple[Launch, ...]:
    count = x.shape[-1]
    columns = x.numel() // count
    blocks, width = _parts(columns, _WIDTH), _WIDTH // reads * _LANES
    name = f"{kernel}_innermost_transposed_{types}"
    return (Launch(name, (x, out, count, columns, blocks), (width, blocks, 1), (width, 1, 1)),)


def _tiny(kernel: str, types: str, x: torch.Tensor, out: torch.Tensor) -> tuple[Launch, ...]:
    count = x.shape[-1]
    rows, each = x.numel() // count, _TINY_TILE // count
    name = f"{kernel}_tiny_innermost_{types}"
    return (Launch(name, (x, out, count, rows, each), (_GROUP * _parts(rows, each),), (_GROUP,)),)


def _row_looking_back(kernel: str, types: str, x: torch.Tensor, out: torch.Tensor, count: int) -> tuple[Launch, ...]:
    tiles = _parts(count, _GROUP * _READS)
    every = x.numel() // count * tiles
    further = (_nothing_yet(1, 0), _nothing_yet(every, -1), _nothing_yet(every, -1), count, tiles)
    return (Launch(f"{kernel}_contig_decoupled_{types}", (x, out, *further), (_GROUP * every,), (_GROUP,)),)


def _columns_looking_back(
    kernel: str, types: str, x: torch.Tensor, out: torch.Tensor, count: int, after: int
) -> tuple[Launch, ...]:
    width, reads = 768 if after <= 2 else 512, _COLUMN_READS[after]
    tiles = _parts(count, width * reads)
    every = x.numel() // (count * after) * tiles
    places = [_nothing_yet(one, 0) for one in (1, every, every * after, every * after)]
    name = f"{kernel}_strided_decoupled_{after}_{reads}_{types}"
    return (Launch(name, (x, out, *places, count, tiles), (width * every,), (width,)),)


def _row_in_blocks(
    kernel: str, types: str, x: torch.Tensor, out: torch.Tensor, count: int, reads: int
) -> tuple[Launch, ...]:
    rows = x.numel() // count
    blocks = max(math.isqrt(count) // 4, 2)
    blocks = min(blocks, max(1, count // (_GROUP * reads)), 4096)
    size = _parts(count, blocks)
    blocks = _parts(count, size)
    sums = _room(out, rows, blocks)
    threads, group = (_GROUP * blocks, rows, 1), (_GROUP, 1, 1)
    return (
        Launch(f"{kernel}_block_reduce_{types}", (x, sums, count, size, blocks), threads, group),
        Launch(f"{kernel}_block_carry_{types}", (x, out, sums, count, size, blocks), threads, group),
    )


def _narrow_in_blocks(
    kernel: str, types: str, x: torch.Tensor, out: torch.Tensor, count: int, after: int, reads: int
) -> tuple[Launch, ...]:
    """A few columns, all of which a thread reads."""
    rows, width = x.numel() // (count * after), 64
    tile = width * reads
    blocks = max(min(max(_parts(512, rows), 2), max(1, count // tile)), 1)
    size = _up(_parts(count, blocks), tile)
    blocks = _parts(count, size)
    sums = _room(out, rows * blocks * after)
    threads, group = (width, rows * blocks, 1), (width, 1, 1)
    places = (count, size, blocks, rows)
    return (
        Launch(f"{kernel}_vec_block_reduce_{after}_{types}", (x, sums, *places), threads, group),
        Launch(f"{kernel}_vec_block_carry_{after}_{types}", (x, out, sums, *places), threads, group),
    )


def _columns_in_blocks(
    kernel: str, types: str, x: torch.Tensor, out: torch.Tensor, count: int, after: int, reads: int
) -> tuple[Launch, ...]:
    rows, step = x.numel() // (count * after), 32
    known = (8, 12, 16, 24) if x.dtype in _FLOATS else (8, 16)
    wide = next((one for one in known if after <= one), _WIDTH)
    across = _parts(after, wide)
    blocks = max(_parts(4096, rows * across), 2)
    blocks = min(blocks, max(1, count // 512))
    size = _up(_parts(count, blocks), step)
    blocks = _parts(count, size)
    sums = _room(out, rows * after, blocks)
    width = wide // reads * _LANES
    threads, group = (width, rows * across * blocks, 1), (width, 1, 1)
    places = (count, after, across, size, blocks, rows)
    return (
        Launch(f"{kernel}_strided_block_reduce_{wide}_{types}", (x, sums, *places), threads, group),
        Launch(
            f"{kernel}_scan_block_sums_{NAMES[out.dtype]}", (sums, blocks), (_GROUP, rows * after, 1), (_GROUP, 1, 1)
        ),
        Launch(f"{kernel}_strided_block_carry_{wide}_{types}", (x, out, sums, *places), threads, group),
    )


SCANS: dict[str, Describe] = {
    **{name: partial(_scan, kernel=name) for name in ("cumsum", "cumprod", "logcumsumexp")},
    "_logcumsumexp": partial(_scan, kernel="logcumsumexp"),
}
