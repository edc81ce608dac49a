# ruff: noqa: PLW0108 - the lambdas are in one column, so that each row reads as its call
"""Calls that make the host wait for the GPU, and calls next to them that do not: what waits, by release."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from anymps._vocabulary import Wait

INSIDE = {Wait.INSIDE_OPERATOR}
NOTHING: set[Wait] = set()


@dataclass(frozen=True)
class WaitingCall:
    """A call of what `make` gives, and the kinds of wait that it records in releases from `since` to `until`."""

    call: Callable[..., object]
    waits: set[Wait]
    make: Callable[[], tuple[object, ...]]
    since: tuple[int, int] = (2, 11)
    until: tuple[int, int] = (2, 15)
    kernel: str = ""  # an operator that not every release has


def matrix() -> tuple[torch.Tensor]:
    """A well-conditioned 4 by 4 matrix on the device."""
    return (torch.rand(4, 4, generator=torch.Generator().manual_seed(0)).add(torch.eye(4)).to("mps"),)


def numbers() -> tuple[torch.Tensor]:
    """Whole numbers on the device."""
    return (torch.tensor([1, 2, 3]).to("mps"),)


def one() -> tuple[torch.Tensor]:
    """A single number on the device."""
    return (torch.tensor([0.5]).to("mps")[0],)


def with_one() -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix and a single number."""
    return (*matrix(), *one())


def mask() -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix and a mask over it."""
    (x,) = matrix()
    return x, x > 0.5


def mask_with_one() -> tuple[torch.Tensor, ...]:
    """A matrix, a mask over it and a single number."""
    return (*mask(), *one())


def repeats() -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix and how often to repeat each row."""
    return (*matrix(), torch.tensor([1, 2, 1, 2]).to("mps"))


def sorted_rows() -> tuple[torch.Tensor, torch.Tensor]:
    """A row and what sorts it."""
    (x,) = matrix()
    return x[0], torch.argsort(x[0])


def on_cpu() -> tuple[torch.Tensor]:
    """A matrix that lies on the CPU."""
    return (torch.ones(4, 4),)


def both_sides() -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix on the device and one on the CPU."""
    return (*matrix(), *on_cpu())


def sparse() -> tuple[torch.Tensor]:
    """A sparse matrix that is coalesced."""
    (x,) = matrix()
    return (x.to_sparse(),)


def doubled() -> tuple[torch.Tensor]:
    """A sparse vector that names an entry twice."""
    return (torch.sparse_coo_tensor(torch.tensor([[0, 0, 1]]).to("mps"), torch.ones(3).to("mps"), (3,)),)


def sparse_with_index() -> tuple[torch.Tensor, torch.Tensor]:
    """A sparse matrix and the number of a row."""
    return (*sparse(), torch.tensor([0]).to("mps"))


def sparse_and_dense() -> tuple[torch.Tensor, torch.Tensor]:
    """A sparse matrix and a dense one."""
    return (*sparse(), *matrix())


def optimizer(kind: str, rate: str) -> Callable[[], tuple[torch.optim.Optimizer]]:
    """An optimizer with a gradient to take, its learning rate a number or a tensor on the device."""

    def make() -> tuple[torch.optim.Optimizer]:
        weight = torch.nn.Parameter(torch.ones(4).to("mps"))
        weight.grad = torch.ones(4).to("mps")
        lr = 0.1 if rate == "number" else torch.tensor([0.1]).to("mps")[0]
        fused = not kind.startswith("plain ")
        made: torch.optim.Optimizer = getattr(torch.optim, kind.removeprefix("plain "))([weight], lr=lr, fused=fused)
        return (made,)

    return make


def weight() -> tuple[torch.Tensor]:
    """A parameter with a gradient."""
    parameter = torch.nn.Parameter(torch.ones(4).to("mps"))
    parameter.grad = torch.ones(4).to("mps")
    return (parameter,)


def scaler() -> tuple[torch.amp.GradScaler, torch.optim.Optimizer]:
    """A gradient scaler after its backward, and the optimizer."""
    parameter = torch.nn.Parameter(torch.ones(4).to("mps"))
    made = torch.amp.GradScaler("mps")
    torch.autograd.backward(made.scale(parameter.sum()))
    return made, torch.optim.SGD([parameter], lr=0.1)


def events() -> tuple[torch.mps.Event, torch.mps.Event]:
    """Two recorded events with timing."""
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    return start, end


def nothing() -> tuple[()]:
    """No argument."""
    return ()


READS = {
    "item": WaitingCall(lambda x: x.item(), {Wait.ITEM}, one),
    "bool": WaitingCall(lambda x: bool(x), {Wait.ITEM}, one),
    "int": WaitingCall(lambda x: int(x), {Wait.ITEM}, one),
    "float": WaitingCall(lambda x: float(x), {Wait.ITEM}, one),
    "complex": WaitingCall(lambda x: complex(x), {Wait.ITEM}, one),
    "is_nonzero": WaitingCall(lambda x: torch.is_nonzero(x), {Wait.ITEM}, one),
    "as an index": WaitingCall(lambda x: [1, 2, 3, 4][x[0]], {Wait.ITEM}, numbers),
    "as a slice's end": WaitingCall(lambda x: x[: x[0]], {Wait.ITEM}, numbers),
    "if": WaitingCall(lambda x: 1 if x.isnan() else 2, {Wait.ITEM}, one),
    "isfinite all": WaitingCall(lambda x: torch.isfinite(x).all().item(), {Wait.ITEM}, matrix),
    "allclose": WaitingCall(lambda x: torch.allclose(x, x), {Wait.ITEM}, matrix),
    "in": WaitingCall(lambda x: 0.5 in x, {Wait.ITEM}, matrix),
    "format": WaitingCall(lambda x: f"{x:.2f}", {Wait.ITEM}, one),
    "print": WaitingCall(lambda x: str(x), {Wait.ITEM, Wait.COPY_TO_CPU, Wait.INSIDE_OPERATOR}, matrix),
    "tolist": WaitingCall(lambda x: x.tolist(), {Wait.COPY_TO_CPU}, matrix),
    "one_hot": WaitingCall(lambda x: torch.nn.functional.one_hot(x), {Wait.ITEM}, numbers),
    "one_hot of known size": WaitingCall(lambda x: torch.nn.functional.one_hot(x, 4), NOTHING, numbers),
    "assert_async": WaitingCall(lambda x: torch._assert_async(x), NOTHING, one, kernel="_assert_async"),
}

COPIES = {
    "cpu": WaitingCall(lambda x: x.cpu(), {Wait.COPY_TO_CPU}, matrix),
    "to cpu": WaitingCall(lambda x: x.to("cpu"), {Wait.COPY_TO_CPU}, matrix),
    "to cpu, non_blocking": WaitingCall(lambda x: x.to("cpu", non_blocking=True), NOTHING, matrix),
    "to mps": WaitingCall(lambda x: x.to("mps"), {Wait.COPY_TO_MPS}, on_cpu),
    "to mps, non_blocking": WaitingCall(lambda x: x.to("mps", non_blocking=True), NOTHING, on_cpu),
    "to mps, non_blocking, other strides": WaitingCall(
        lambda x, y: x.copy_(y.t(), non_blocking=True), {Wait.COPY_TO_MPS}, both_sides
    ),
    "tensor": WaitingCall(lambda: torch.tensor([1.0], device="mps"), {Wait.COPY_TO_MPS}, nothing),
    "copy_ to mps": WaitingCall(lambda x, y: x.copy_(y), {Wait.COPY_TO_MPS}, both_sides),
    "copy_ to cpu": WaitingCall(lambda x, y: y.copy_(x), {Wait.COPY_TO_CPU}, both_sides),
    "clone": WaitingCall(lambda x: x.clone(), NOTHING, matrix),
    "deepcopy": WaitingCall(lambda x: copy.deepcopy(x), NOTHING, matrix),
    "made on mps": WaitingCall(lambda: torch.zeros(4, device="mps"), NOTHING, nothing),
}

SIZES = {
    "nonzero": WaitingCall(lambda x: x.nonzero(), INSIDE, matrix),
    "nonzero_static": WaitingCall(lambda x: torch.nonzero_static(x, size=3), NOTHING, matrix, kernel="nonzero_static"),
    "argwhere": WaitingCall(lambda x: x.argwhere(), INSIDE, matrix),
    "where of a condition": WaitingCall(lambda x, m: torch.where(m), INSIDE, mask),
    "where": WaitingCall(lambda x, m: torch.where(m, x, 0), NOTHING, mask),
    "masked_select": WaitingCall(lambda x, m: x.masked_select(m), INSIDE, mask),
    "masked_scatter": WaitingCall(lambda x, m: x.masked_scatter(m, x), INSIDE, mask),
    "index by a mask": WaitingCall(lambda x, m: x[m], INSIDE, mask),
    "index by numbers": WaitingCall(lambda x, n: x[n], NOTHING, repeats),
    "put at a mask": WaitingCall(lambda x, m, v: x.index_put_((m[:, 0],), v), INSIDE, mask_with_one),
    "unique": WaitingCall(lambda x: torch.unique(x), INSIDE, matrix),
    "unique of rows": WaitingCall(lambda x: torch.unique(x, dim=0), INSIDE, matrix),
    "unique_consecutive": WaitingCall(lambda x: torch.unique_consecutive(x), INSIDE, matrix),
    "unique_consecutive of rows": WaitingCall(lambda x: torch.unique_consecutive(x, dim=0), INSIDE, matrix),
    "bincount": WaitingCall(lambda x: torch.bincount(x), INSIDE, numbers),
    "repeat_interleave": WaitingCall(lambda x, n: torch.repeat_interleave(x, n, dim=0), INSIDE, repeats),
    "repeat_interleave to a known size": WaitingCall(
        lambda x, n: torch.repeat_interleave(x, n, dim=0, output_size=6), NOTHING, repeats
    ),
    "repeat_interleave by a number": WaitingCall(lambda x: torch.repeat_interleave(x, 2, dim=0), NOTHING, matrix),
    "to_sparse": WaitingCall(lambda x: x.to_sparse(), INSIDE, matrix),
    "coalesce": WaitingCall(lambda x: x.coalesce(), INSIDE, doubled),
    "index_select of a sparse tensor": WaitingCall(lambda x, n: x.index_select(0, n), INSIDE, sparse_with_index),
    "index_select": WaitingCall(lambda x, n: x.index_select(0, n), NOTHING, repeats),
    "product of sparse matrices": WaitingCall(lambda x: torch.sparse.mm(x, x), INSIDE, sparse),
    "sparse times sparse": WaitingCall(lambda x: x * x, INSIDE, sparse),
    "sparse times sparse in place": WaitingCall(lambda x: x.mul_(x), INSIDE, sparse),
    "sparse times dense": WaitingCall(lambda x, y: x * y, NOTHING, sparse_and_dense),
    "sparse times a number": WaitingCall(lambda x: x * 2, NOTHING, sparse),
    "dense times dense": WaitingCall(lambda x: x * x, NOTHING, matrix),
    "sparse_mask": WaitingCall(lambda x, y: y.sparse_mask(x), INSIDE, sparse_and_dense),
}

VALUES = {
    "equal": WaitingCall(lambda x: torch.equal(x, x.clone()), INSIDE, matrix),
    "eq all": WaitingCall(lambda x: (x == x).all(), NOTHING, matrix),
    "masked_fill by a tensor": WaitingCall(lambda x, m, v: x.masked_fill(m, v), INSIDE, mask_with_one),
    "masked_fill by a number": WaitingCall(lambda x, m: x.masked_fill(m, 0.0), NOTHING, mask),
    "index_fill by a tensor": WaitingCall(
        lambda x, v: x.index_fill(0, torch.zeros(1, dtype=torch.long, device="mps"), v), INSIDE, with_one, since=(2, 12)
    ),
    "index_copy": WaitingCall(
        lambda x, n: x.index_copy(0, n, x), NOTHING, lambda: (*matrix(), torch.arange(4).to("mps"))
    ),
    "index_copy of a single number": WaitingCall(
        lambda x, n: x.index_copy(0, n, x), INSIDE, lambda: (*one(), torch.zeros((), dtype=torch.long).to("mps"))
    ),
    "bernoulli_ by a single tensor": WaitingCall(lambda x, p: x.bernoulli_(p), INSIDE, with_one),
    "bernoulli_ by a tensor": WaitingCall(lambda x: x.bernoulli_(x.clone().clamp(0, 1)), NOTHING, matrix),
    "bernoulli_ by a number": WaitingCall(lambda x: x.bernoulli_(0.5), NOTHING, matrix),
    "normal": WaitingCall(lambda x: torch.normal(x, x), INSIDE, matrix, since=(2, 13)),
    "multinomial": WaitingCall(lambda x: torch.multinomial(x, 2), INSIDE, matrix, until=(2, 12)),
    "histc": WaitingCall(lambda x: torch.histc(x), INSIDE, matrix),
    "histc between ends": WaitingCall(lambda x: torch.histc(x, 10, 0, 1), NOTHING, matrix),
    "histogram": WaitingCall(lambda x: torch.histogram(x, 10), INSIDE, matrix),
    "histogram of a range": WaitingCall(lambda x: torch.histogram(x, 10, range=(0.0, 1.0)), NOTHING, matrix),
    "histogramdd": WaitingCall(lambda x: torch.histogramdd(x, [2, 2, 2, 2]), INSIDE, matrix),
    "histogramdd of a range": WaitingCall(
        lambda x: torch.histogramdd(x, [2, 2, 2, 2], range=[0.0, 1.0] * 4), NOTHING, matrix
    ),
    "searchsorted": WaitingCall(lambda x, n: torch.searchsorted(x.sort()[0], x), NOTHING, sorted_rows),
    "searchsorted with a sorter": WaitingCall(lambda x, n: torch.searchsorted(x, x, sorter=n), INSIDE, sorted_rows),
    "solve_ex": WaitingCall(lambda x: torch.linalg.solve_ex(x, x), INSIDE, matrix, until=(2, 13)),
    "solve": WaitingCall(lambda x: torch.linalg.solve(x, x), {Wait.ITEM, Wait.INSIDE_OPERATOR}, matrix, until=(2, 13)),
    "lu_factor_ex": WaitingCall(lambda x: torch.linalg.lu_factor_ex(x), INSIDE, matrix, until=(2, 13)),
    "lu": WaitingCall(lambda x: torch.linalg.lu(x), INSIDE, matrix, until=(2, 13)),
    "inv_ex": WaitingCall(lambda x: torch.linalg.inv_ex(x), INSIDE, matrix, until=(2, 13)),
    "det": WaitingCall(lambda x: torch.linalg.det(x), INSIDE, matrix, until=(2, 13)),
    "slogdet": WaitingCall(lambda x: torch.linalg.slogdet(x), INSIDE, matrix, until=(2, 13)),
    "qr": WaitingCall(lambda x: torch.linalg.qr(x), INSIDE, matrix, until=(2, 13), kernel="linalg_qr.out"),
    "cholesky": WaitingCall(lambda x: torch.linalg.cholesky(torch.eye(4, device="mps")), {Wait.ITEM}, matrix),
    "cholesky_ex": WaitingCall(lambda x: torch.linalg.cholesky_ex(torch.eye(4, device="mps")), NOTHING, matrix),
}

STEPS = {
    **{
        f"fused {kind}, lr a {rate}": WaitingCall(
            lambda made: made.step(), INSIDE if rate == "tensor" else NOTHING, optimizer(kind, rate)
        )
        for kind in ("Adam", "AdamW", "SGD")
        for rate in ("tensor", "number")
    },
    "plain AdamW": WaitingCall(lambda made: made.step(), NOTHING, optimizer("plain AdamW", "number")),
    "GradScaler.step": WaitingCall(lambda grad_scaler, optimizer: grad_scaler.step(optimizer), {Wait.ITEM}, scaler),
    "clip_grad_norm_": WaitingCall(lambda parameter: torch.nn.utils.clip_grad_norm_([parameter], 1.0), NOTHING, weight),
    "clip_grad_norm_, error_if_nonfinite": WaitingCall(
        lambda parameter: torch.nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True), {Wait.ITEM}, weight
    ),
    "always on the CPU": WaitingCall(
        lambda x: torch.embedding_renorm_(x, torch.zeros(1, dtype=torch.long, device="mps"), 1.0, 2.0),
        {Wait.FALLBACK},
        matrix,
    ),
}

DEVICE = {
    "synchronize": WaitingCall(torch.mps.synchronize, {Wait.SYNCHRONIZE}, nothing),
    "accelerator synchronize": WaitingCall(torch.accelerator.synchronize, {Wait.SYNCHRONIZE}, nothing),
    "elapsed_time": WaitingCall(lambda a, b: a.elapsed_time(b), {Wait.EVENT}, events),
    "event synchronize": WaitingCall(lambda a, b: b.synchronize(), {Wait.EVENT}, events),
    "event wait": WaitingCall(lambda a, b: b.wait(), NOTHING, events),
    "event record": WaitingCall(lambda a, b: b.record(), NOTHING, events),
    "empty_cache": WaitingCall(torch.mps.empty_cache, {Wait.EMPTY_CACHE}, nothing),
    "accelerator empty_cache": WaitingCall(lambda: torch.accelerator.empty_cache(), {Wait.EMPTY_CACHE}, nothing),
    "manual_seed": WaitingCall(lambda: torch.mps.manual_seed(1), NOTHING, nothing),
}

WAITING = {**READS, **COPIES, **SIZES, **VALUES, **STEPS, **DEVICE}
