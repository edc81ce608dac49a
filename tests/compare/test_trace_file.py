"""A trace's file: what is written is read, steps that are traced, and a file that was cut."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from anymps.compare import Bound, Ending, Sketch, Trace, TracedCall, places
from anymps.compare._trace import TraceWriter
from anymps.compare.inside import _tracer
from anymps.compare.inside._sites import ForwardLines
from anymps.compare.inside._sketch import digest_of, on_cpu, readable, sketched
from anymps.compare.inside._tracer import Tracer, is_full_step
from anymps.record import Site


def traced(path: Path, *, autograd: bool = False) -> Trace:
    """The trace of a few calls on the CPU."""
    writer = TraceWriter(path)
    writer.row("facts", {"device": "cpu"})
    tracer = Tracer(writer, "cpu", in_host_memory=False, by_kernels=lambda: 0)
    torch.manual_seed(0)
    weight = torch.ones(3, 2, requires_grad=autograd)
    with tracer:
        result = (torch.arange(6.0).reshape(2, 3) @ weight).relu()
        if autograd:
            result.sum().backward()
        torch.bernoulli(torch.full((4,), 0.5))
        result.detach().max().item()
    writer.close(Ending(is_cut=False))
    return Trace.open(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Operators, lines, sketches, bounds, the generator's mark, reads and the ending."""
    trace = traced(tmp_path / "trace")
    assert [call.name for call in trace.calls] == ["arange", "mm", "relu", "full", "bernoulli", "max"]
    mm = trace.calls[1]
    assert mm.site.file == __file__
    assert mm.site.source == "result = (torch.arange(6.0).reshape(2, 3) @ weight).relu()"
    assert mm.bound.kind == "sum"
    assert mm.bound.terms == 3
    result = mm.results[0].sketch
    assert (result.dtype, result.shape, result.low, result.high, result.total) == ("float32", (2, 2), 3.0, 12.0, 30.0)
    assert result.elements == (3.0, 3.0, 12.0, 12.0)
    assert [call.is_random for call in trace.calls] == [False, False, False, False, True, False]
    assert [read.value for read in trace.reads] == [12.0]
    assert trace.ending == Ending(is_cut=False)
    assert trace.lists["mm"].devices == ("cpu", "cuda", "mps")


def test_backward_has_the_forward_line(tmp_path: Path) -> None:
    """Calls of backward are marked, and have the line of their forward call."""
    trace = traced(tmp_path / "trace", autograd=True)
    lines = {call.name: (call.in_backward, call.site.source) for call in trace.calls}
    assert lines["threshold_backward"] == (True, "result = (torch.arange(6.0).reshape(2, 3) @ weight).relu()")


def test_what_autograd_adds_up_has_the_line_of_the_view(tmp_path: Path) -> None:
    """A view takes part although it is no call of its own: the sum of gradients at its input has its line."""

    def program() -> None:
        x = torch.ones(2, 3, requires_grad=True) * 2
        z = x.reshape(3, 2) @ torch.ones(2, 1)
        y = x.exp()  # the newest runs backward first
        (y.sum() + z.sum()).backward()

    found = {call.name: call.site.source for call in calls_of(tmp_path / "trace", program) if call.in_backward}
    assert found["add"] == found["mm"] == "z = x.reshape(3, 2) @ torch.ones(2, 1)"


def test_lines_of_forward_calls() -> None:
    """A node has its own line or that of the call before it; what was noted first stays, and the oldest are dropped."""
    lines = ForwardLines()
    assert lines.line_of(5, otherwise=99) == 99
    for sequence, line in ((4, 40), (8, 80), (6, 60), (8, 81)):
        lines.add(sequence, line)
    assert [lines.line_of(sequence, 99) for sequence in (3, 4, 5, 6, 7, 8, 9)] == [99, 40, 40, 60, 60, 80, 80]
    assert lines.line_of(2**64 - 1, otherwise=99) == 99
    for sequence in range(10, 10 + (1 << 16)):
        lines.add(sequence, sequence)
    assert [lines.line_of(sequence, 99) for sequence in (8, 1 << 16)] == [99, 1 << 16]


def calls_of(path: Path, program: Callable[[], object]) -> tuple[TracedCall, ...]:
    """What is traced of a program."""
    writer = TraceWriter(path)
    with Tracer(writer, "cpu", in_host_memory=False, by_kernels=lambda: 0):
        program()
    writer.close(Ending(is_cut=False))
    return tuple(Trace.open(path).calls)


@pytest.mark.parametrize(
    ("call", "draws"),
    [
        (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.0), False),
        (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), True),
        (lambda x: torch.native_dropout(x, 0.5, train=False), False),
        (lambda x: torch.native_dropout(x, 0.5, train=True), True),
        (lambda x: torch.rrelu(x, training=False), False),
        (lambda x: torch.multinomial(x[0, 0, 0].abs(), 1), True),
    ],
)
def test_a_call_without_dropout_draws_nothing(
    tmp_path: Path, call: Callable[[torch.Tensor], object], draws: bool
) -> None:
    """Attention and dropout draw random numbers only with a probability, and only in training."""
    calls = calls_of(tmp_path / "trace", lambda: call(torch.ones(1, 2, 3, 4)))
    assert len(calls) > 1
    assert any(one.is_random for one in calls) is draws


def test_a_generator_of_the_program(tmp_path: Path) -> None:
    """The trace tells a generator that the program gave from torch's own."""
    generator = torch.Generator().manual_seed(0)
    calls = calls_of(tmp_path / "trace", lambda: (torch.rand(2), torch.rand(2, generator=generator)))
    assert [(one.is_random, one.with_generator) for one in calls] == [(True, False), (True, True)]


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Half a row at the end is left out, and the trace says that it was cut."""
    path = tmp_path / "trace"
    traced(path)
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    trace = Trace.open(path)
    assert len(trace.calls) == 6
    assert trace.ending.is_cut
    assert Trace.open(tmp_path / "none").facts == {}


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, True), (9, True), (10, False), (19, True), (20, False), (29, False), (39, True), (79, True), (119, False)],
)
def test_steps_that_are_traced(step: int, expected: bool) -> None:
    """The first ten, then the 20th, the 40th and so on."""
    assert is_full_step(step, 10) is expected


def test_steps_at_doubling_distances_from_the_first() -> None:
    """Of no step or one that is traced whole, each power of two."""
    for full in (0, 1):
        assert [step for step in range(20) if is_full_step(step, full)] == [0, 1, 3, 7, 15]
    assert [step for step in range(20) if is_full_step(step, 3)] == [0, 1, 2, 5, 11]


def test_no_more_calls_than_a_trace_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are counted."""
    monkeypatch.setattr(_tracer, "MOST_CALLS", 2)
    writer = TraceWriter(tmp_path / "trace")
    tracer = Tracer(writer, "cpu", in_host_memory=False, by_kernels=lambda: 0)
    x = torch.ones(2)
    with tracer:
        for _ in range(5):
            x = x + 1
    writer.close(Ending())
    assert (tracer.calls, tracer.left_out) == (2, 3)
    assert [call.number for call in Trace.open(tmp_path / "trace").calls] == [0, 1]
    assert x.tolist() == [6.0, 6.0]


def test_what_is_written_over_is_no_input(tmp_path: Path) -> None:
    """In place and by `out=`; what is read and written is both, and stands among the results once."""

    def program() -> None:
        x, y = torch.ones(2), torch.full((2,), 2.0)
        x.fill_(3.0)
        x.add_(1.0)
        torch.mul(x, 2.0, out=y)

    fill, add, mul = calls_of(tmp_path / "trace", program)[-3:]
    assert [len(call.inputs) for call in (fill, add, mul)] == [0, 1, 1]
    assert [[value.sketch.elements for value in call.results] for call in (fill, add, mul)] == [
        [(3.0, 3.0)],
        [(4.0, 4.0)],
        [(8.0, 8.0)],
    ]
    assert add.inputs[0].memory == add.results[0].memory == fill.results[0].memory != 0
    assert add.inputs[0].sketch.elements == (3.0, 3.0)


def test_an_empty_tensor_has_no_memory(tmp_path: Path) -> None:
    """Nothing identifies it in later calls."""
    calls = calls_of(tmp_path / "trace", lambda: torch.ones(0) + torch.ones(0))
    assert [value.memory for value in (*calls[-1].inputs, *calls[-1].results)] == [0, 0, 0]


def test_which_call_pytorchs_kernels_computed(tmp_path: Path) -> None:
    """By their counter, before a call and after it."""
    counts = iter([5, 5, 5, 6, 6, 9])
    writer = TraceWriter(tmp_path / "trace")
    x = torch.ones(2)
    with Tracer(writer, "cpu", in_host_memory=False, by_kernels=lambda: next(counts)):
        x + 1, x * 2, x - 3
    writer.close(Ending())
    assert [call.by_kernel for call in Trace.open(tmp_path / "trace").calls] == [False, True, True]


def test_the_bound_is_that_of_the_narrowest_dtype(tmp_path: Path) -> None:
    """Of what takes part, with the limit of PyTorch's own tests for it."""

    def program() -> None:
        half, single = torch.ones(2, dtype=torch.float16), torch.ones(2)
        half * single, single * single, single.long() * 2

    bounds = [call.bound for call in calls_of(tmp_path / "trace", program) if call.name == "mul"]
    assert [(bound.kind, bound.relative, bound.limit, bound.least) for bound in bounds] == [
        ("function", 2.0**-10, 5e-2, 5e-2),
        ("function", 2.0**-23, 3e-5, 1e-4),
        ("exact", 0.0, 0.0, 0.0),
    ]


@pytest.mark.parametrize(
    ("call", "name", "whole", "devices"),
    [
        (lambda x: x.softmax(-1), "_softmax", "softmax", ("cuda",)),
        (lambda x: x @ x, "mm", "mm", ("cpu", "cuda", "mps")),
    ],
)
def test_whose_autocast_lists_an_operator_is_on(
    tmp_path: Path, call: Callable[[torch.Tensor], object], name: str, whole: str, devices: tuple[str, ...]
) -> None:
    """Its own, or those of the operator that it is a part of."""
    path = tmp_path / "trace"
    calls_of(path, lambda: call(torch.ones(2, 2)))
    found = Trace.open(path).lists[name]
    assert found.name == whole
    assert set(devices) <= set(found.devices)


def test_only_what_the_program_reads_itself_is_a_read(tmp_path: Path) -> None:
    """Not what torch reads on its way; truth values and numbers, each as a number."""
    path = tmp_path / "trace"

    def program() -> None:
        x = torch.tensor([0.0, 2.5])
        x[1].item(), bool(x[0] > 0), torch.nn.utils.rnn.pad_sequence([x, x])
        torch.nn.functional.one_hot(torch.tensor([0, 2]))

    calls_of(path, program)
    assert [read.value for read in Trace.open(path).reads][:2] == [2.5, 0.0]


def test_each_row_is_on_the_disk_at_once(tmp_path: Path) -> None:
    """The process may be killed. After the end there are no more."""
    writer = TraceWriter(tmp_path / "trace")
    for number in (1, 2):
        writer.row("traced", 1)
        assert (tmp_path / "trace").read_text(encoding="utf-8").count("\n") == number
    writer.close(Ending())
    writer.row("traced", 1)
    assert (tmp_path / "trace").read_text(encoding="utf-8").count("\n") == 3


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_sketches_of_nothing_and_of_large_numbers() -> None:
    """Empty tensors, zeros, nothing finite, and squares that would run over."""

    def made(*numbers: float, dtype: torch.dtype = torch.float32) -> Sketch:
        here = torch.tensor(numbers, dtype=dtype)
        return sketched(here, digest_of(here))

    empty = made()
    assert (empty.shape, empty.count, empty.size, empty.elements, empty.rms) == ((0,), 0, 0.0, (), 0.0)
    assert (empty.nans, empty.infinities, empty.low, empty.high, empty.total) == (0, 0, 0.0, 0.0, 0.0)
    zeros = made(0.0, 0.0)
    assert (zeros.low, zeros.high, zeros.rms, zeros.total) == (0.0, 0.0, 0.0, 0.0)
    lost = made(math.nan, math.inf, -math.inf)
    assert (lost.nans, lost.infinities, lost.low, lost.high, lost.rms) == (1, 2, 0.0, 0.0, 0.0)
    assert lost.elements[1:] == (math.inf, -math.inf)
    assert made(3.0, -4.0).rms == pytest.approx(12.5**0.5, rel=1e-12)
    assert made(3e200, -4e200, dtype=torch.float64).rms == pytest.approx(12.5**0.5 * 1e200, rel=1e-12)
    assert made(3e-200, -4e-200, dtype=torch.float64).rms == pytest.approx(12.5**0.5 * 1e-200, rel=1e-12)
    assert made(3e38, -3e38).rms == pytest.approx(3e38, rel=1e-6)
    assert made(1e8, 1.0, -1e8).total == 1.0
    assert made(6e4, 6e4, dtype=torch.float16).total == 120_000.0
    assert made(3.0, -4.0).size == 4.0
    half = torch.tensor([3 + 4j]).to(torch.complex32)
    assert sketched(half, "").high == 5.0


def test_digests_are_of_the_bytes() -> None:
    """Whatever the sizes; of no bytes there is one, too."""
    x = torch.tensor([1.0, 2.0])
    assert digest_of(x) == digest_of(x.view(2, 1)) == digest_of(x.view(torch.int32))
    assert digest_of(x) != digest_of(x + 1)
    assert digest_of(torch.empty(0)) == digest_of(torch.empty(0, 3))
    assert len(digest_of(x)) == 16


def test_places_are_spread_from_the_first_to_the_last() -> None:
    """16 at most, with both ends."""
    assert places(0) == []
    assert places(1) == [0]
    assert places(3) == [0, 1, 2]
    assert places(100)[:3] == [0, 6, 13]
    assert (len(places(100)), places(100)[-1]) == (16, 99)


def test_sketches_of_numbers_that_are_not_finite() -> None:
    """NaN and infinity are counted, and the other numbers are of the finite ones."""
    here = on_cpu(torch.tensor([1.0, float("nan"), -3.0, float("inf")]), in_host_memory=False)
    found = sketched(here, digest_of(here))
    assert (found.nans, found.infinities, found.low, found.high, found.total) == (1, 1, -3.0, 1.0, -2.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_sketches_of_all_dtypes(dtype: torch.dtype) -> None:
    """Each can be read; complex numbers by their absolute values."""
    here = on_cpu(torch.tensor([0, 1, 1]).to(dtype).unflatten(0, (3, 1)), in_host_memory=False)
    found = sketched(here, digest_of(here))
    assert (found.shape, found.low, found.high, found.total) == ((3, 1), 0.0, 1.0, 2.0)


def test_what_cannot_be_read() -> None:
    """Sparse tensors and such without memory are left out."""
    assert readable(torch.ones(2))
    assert not readable(torch.ones(2).to_sparse())
    assert not readable(torch.ones(2, device="meta"))


def test_bounds_and_sites_are_written_once(tmp_path: Path) -> None:
    """The same line has the same number."""
    writer = TraceWriter(tmp_path / "trace")
    assert [writer.number("site", Site("a.py", 1)) for _ in range(2)] == [1, 1]
    assert [writer.number("bound", Bound("sum")) for _ in range(2)] == [0, 0]
    writer.close(Ending())
    assert (tmp_path / "trace").read_text(encoding="utf-8").count("\n") == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    """A loader's worker has the file open."""
    writer = TraceWriter(tmp_path / "trace")
    writer.number("site", Site("a.py", 1))
    child = os.fork()
    if not child:
        writer.number("site", Site("b.py", 2))
        os._exit(0)
    os.waitpid(child, 0)
    writer.close(Ending())
    rows = (tmp_path / "trace").read_text(encoding="utf-8").splitlines()
    assert [row.partition(":")[0] for row in rows] == ['{"site"', '{"end"']
