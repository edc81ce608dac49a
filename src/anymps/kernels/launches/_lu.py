"""LU factors with pivots, panel by panel, and systems that they solve, of torch 2.15.

Source: `LinearAlgebra.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations` (lu_factor_panel_encode,
lu_solve_encode), and the same functions in libtorch_cpu of torch 2.15's macOS wheel, for chips without units for
tensors. A matrix lies row by row while it is factored. A panel of 32 columns or fewer is factored in registers, or, of
more than 4096 rows, column by column by many groups of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work, empty
from anymps.kernels.launches._elements import NAMES, batch_of

_PANEL = 32
_MOST = 1024  # threads of a group
_TALL = 4 * _MOST  # rows
_PARTS, _ROWS_AT_ONCE = 256, 8  # largest numbers that a search keeps; SIMD groups of a group of threads
_SCRATCH = 2304  # bytes that a batch's search needs
_DTYPES = (torch.float32, torch.complex64)


class _Steps:
    """The launches over a batch of matrices, row by row; each has its arguments in the same slots."""

    def __init__(self, matrix: torch.Tensor, pivots: torch.Tensor, info: torch.Tensor | None) -> None:
        self.matrix, self.pivots, self.info = matrix, pivots, info
        self.batch, self.rows, self.columns = matrix.shape
        self.of = NAMES[matrix.dtype]
        self.launches: list[Launch] = []
        self.scratch: torch.Tensor | None = None

    def add(self, name: str, slots: str, groups: tuple[int, ...], threads: tuple[int, ...], **more: Any) -> None:
        """`slots` are the digits of those that the kernel has; `p` and `w` its windows."""
        known = (self.matrix, self.pivots, self.info, [self.rows, self.columns], more.get("p"), more.get("w"))
        given = [*known, self.scratch]
        buffers = tuple(given[at] if str(at) in slots else None for at in range(int(slots[-1]) + 1))
        grid = tuple(count * size for count, size in itertools.zip_longest(groups, threads, fillvalue=1))
        self.launches.append(Launch(name, buffers, grid, threads))

    def swap(self, first: int, count: int, left: tuple[int, int], right: tuple[int, int]) -> None:
        """Rows as the pivots of a block say, in the columns of two windows."""
        width = left[1] - left[0] + right[1] - right[0]
        if not width:
            return
        columns = 32 if self.matrix.is_complex() else 64
        for at in range(0, count, _PANEL):
            window = [first + at, min(_PANEL, count - at), 0, 0]
            groups = (-(-width // columns), self.batch, 1)
            self.add(f"laswpGatherLU_{self.of}", "01345", groups, (256, 1, 1), p=window, w=[*left, *right])

    def solve(self, kernel: str, first: int, columns: tuple[int, int], size: int) -> None:
        """Columns to the right of a triangle."""
        if columns[0] < columns[1]:
            groups = (self.batch, -(-(columns[1] - columns[0]) // 128), 1)
            self.add(kernel, "034", groups, (128, 1, 1), p=[first, *columns, size])

    def multiply(self, rows: tuple[int, int], columns: tuple[int, int], first: int, count: int) -> None:
        """What a block takes from the rest."""
        tall, wide = rows[1] - rows[0], columns[1] - columns[0]
        if tall <= 0 or wide <= 0:
            return
        window = {"p": [*rows, *columns], "w": [first, count, 0, 0]}
        if self.matrix.is_complex():
            groups: tuple[int, ...] = (-(-wide // 16), -(-tall // 16), self.batch)
            self.add("gemmTiledLU_float2", "0345", groups, (16, 16, 1), **window)
        else:
            groups = (-(-wide // 64), -(-tall // 32), self.batch)
            self.add("gemmSimdLU", "0345", groups, (128, 1, 1), **window)

    def panel(self, first: int, width: int) -> None:
        """Factors of up to 32 columns."""
        tall = self.rows - first
        if tall > _TALL:
            self._column_by_column(first)
            return
        each = 1
        while each < 4 and -(-tall // each) > _MOST:
            each *= 2
        narrow = _PANEL // each
        lines = -(-tall // each)
        threads = min(_MOST, -(-lines // _PANEL) * _PANEL)
        name = f"factorPanelLU_{self.of}_{each}_{narrow}"
        end = first + width
        for at in range(first, end, narrow):
            count = min(narrow, end - at)
            self.add(name, "01234", (self.batch, 1, 1), (threads, 1, 1), p=[at, 0, 0, 0])
            if narrow >= width:
                return
            self.swap(at, count, (first, at), (at + count, end))
            if at + count < end:
                self.solve(f"trsmPanelLU_{self.of}_{narrow}", at, (at + count, end), narrow)
                self.multiply((at + count, self.rows), (at + count, end), at, count)

    def _column_by_column(self, first: int) -> None:
        if self.scratch is None:
            self.scratch = empty([self.batch * _SCRATCH], torch.uint8)
        count = min(_PANEL, min(self.rows, self.columns) - first)
        parts = self._update(first, 0, searches=True)
        for at in range(count):
            self.add(f"luStreamPivot_{self.of}", "012346", (self.batch, 1, 1), (_PARTS, 1, 1), p=[first, at, parts, 0])
            parts = self._update(first, at, searches=False)

    def _update(self, first: int, column: int, searches: bool) -> int:
        """How many groups of threads looked for the next pivot."""
        left = self.rows - first - (column if searches else column + 1)
        if left <= 0:
            return 0
        each = max(1, -(-left // (_ROWS_AT_ONCE * _PARTS)))
        groups = -(-left // (_ROWS_AT_ONCE * each))
        window = [first, column, each, int(searches)]
        self.add(f"luStreamUpdate_{self.of}", "0346", (groups, self.batch, 1), (_PARTS, 1, 1), p=window)
        return groups


def _blocks(size: int, width: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """Where each begins, and how wide it is."""
    return ((at, min(width, size - at)) for at in range(start, size, width))


def _factored(steps: _Steps) -> None:
    """All panels of the matrices, and what lies to the right of and below each."""
    rows, columns, of = steps.rows, steps.columns, steps.of
    least = min(rows, columns)
    wide = 32 if least <= 1024 else 64 if least <= 2048 else 128
    for first, width in _blocks(least, wide):
        end = first + width
        for at, count in _blocks(end, _PANEL, first):
            steps.panel(at, count)
            steps.swap(at, count, (first, at), (at + count, end))
            if at + count < end:
                steps.solve(f"trsmPanelLU_{of}_32", at, (at + count, end), 32)
                steps.multiply((at + count, rows), (at + count, end), at, count)
        steps.swap(first, width, (0, first), (end, columns))
        if end < columns:
            for at, _ in _blocks(end, _PANEL, first):
                steps.solve(f"trsmPanelLU_{of}_32", at, (end, columns), min(32, least - at))
                if at + 32 < end:
                    steps.multiply((at + 32, min(end, rows)), (end, columns), at, 32)
        if end < least:
            steps.multiply((end, rows), (end, columns), first, width)


def _factor(call: KernelCall) -> Work | None:
    matrix = call.given["A"]
    if not call.makes(matrix) or not call.given["pivot"] or call.given["check_errors"] or matrix.dtype not in _DTYPES:
        return None
    rows, columns = matrix.shape[-2:]
    work = matrix.contiguous().clone()
    pivots = empty((*matrix.shape[:-2], min(rows, columns)), torch.int32)
    info = empty(tuple(matrix.shape[:-2]), torch.int32)
    steps = _Steps(work.view(-1, rows, columns), pivots, info)
    _factored(steps)
    if rows == columns:
        tiles = -(-columns // 32)
        steps.add(f"transposeInPlaceLU_{steps.of}", "03", (tiles, tiles, steps.batch), (32, 8, 1))
        return Work((work.mT, pivots, info), tuple(steps.launches))
    out = empty((*matrix.shape[:-2], columns, rows), matrix.dtype).mT
    return Work((out, pivots, info), tuple(steps.launches), copies=((out, work),))


def _solve(call: KernelCall) -> Work | None:
    """The factors stand to the left of the right-hand sides, and are applied 32 rows at a time, down and up again."""
    factors, pivots, sides = (call.given[name] for name in ("LU", "pivots", "B"))
    adjoint = call.given["adjoint"]
    if not call.makes(factors, pivots, sides) or sides.dtype != factors.dtype or not call.given["left"]:
        return None
    if factors.shape[-2] != factors.shape[-1] or sides.dim() < 2 or pivots.dtype != torch.int32:
        return None
    if factors.dtype not in _DTYPES:
        return None
    batch = batch_of(factors, sides)
    size, count = factors.shape[-1], sides.shape[-1]
    given = (factors.mH if adjoint else factors).expand(*batch, size, size)
    both = torch.cat((given, sides.expand(*batch, size, count)), -1).reshape(-1, size, size + count)
    rows = pivots.expand(*batch, size).reshape(-1, size).contiguous()
    steps = _Steps(both.contiguous(), rows, None)
    kernel, end = f"trsmDiagSolveLU_{steps.of}", size + count
    down, up = ("lower_nonunit", "upper_unit") if adjoint else ("lower_unit", "upper_nonunit")

    def swap() -> None:
        window, threads = [size, count, size, int(adjoint)], (min(max(count, 1), 256), 1, 1)
        steps.add(f"luApplyPivotsRHS_{steps.of}", "0134", (steps.batch, 1, 1), threads, p=window)

    if not adjoint:
        swap()
    blocks = list(_blocks(size, _PANEL))
    for first, width in blocks:
        steps.solve(f"{kernel}_{down}", first, (size, end), width)
        steps.multiply((first + width, size), (size, end), first, width)
    for first, width in reversed(blocks):
        steps.solve(f"{kernel}_{up}", first, (size, end), width)
        steps.multiply((0, first), (size, end), first, width)
    if adjoint:
        swap()
    out = empty((*batch, count, size), sides.dtype).mT
    found = steps.matrix.view(*batch, size, end)[..., size:]
    return Work((out,), tuple(steps.launches), copies=((out, found),))


LU: dict[str, Describe] = {"linalg_lu_factor_ex": _factor, "linalg_lu_solve": _solve}
