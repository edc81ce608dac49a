"""What Metal shaders cost on this machine: ratios to eager CPU torch, the checked form, launches, compile times.

    python benchmarks/metal.py [--rounds N] [--threads N]

All is processor time of this process. Reductions are those of `torch.compile`, and five by hand. One interleaved run:
each round times every kernel, its eager counterpart and its checked form, one after the other, so that a change of the
machine's speed meets them alike. A ratio is the median over rounds of (kernel / eager) in the same round, and behind it
stand its quartiles. Results are preallocated on both sides, except for eager layer norm. Compile times are of sources
that no cache knows. Of the checked form the rounds time launches that are checked, as the first eight are, then each
64th: a sample of their groups.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo

import anymps
from anymps.metal.checking import Samples

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void add(device float* out, constant float* a, constant float* b, uint i [[thread_position_in_grid]]) {
  out[i] = a[i] + b[i];
}
kernel void exp_tanh(device float* out, constant float* a, uint i [[thread_position_in_grid]]) {
  out[i] = exp(a[i]) * tanh(a[i]);
}
kernel void nothing(device float* out) {}
kernel void takes(device float* out, constant char* given) {}
// In a loop of each thread's own length, so that threads are fibers.
kernel void barriers(device int* out, constant int& count, uint i [[thread_position_in_grid]]) {
  for (uint n = 0; n < count + i / 4096; ++n) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = count;
}
kernel void votes(device int* out, constant int& count, uint i [[thread_position_in_grid]]) {
  int sum = 0;
  for (uint n = 0; n < count + i / 4096; ++n) sum += simd_sum(1);
  out[i] = sum;
}
// One row a SIMD group: each lane a part of the row, then the lanes together.
kernel void row_sum(device float* out, constant float* a, constant uint& width,
                    uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float sum = 0;
  for (uint i = lane * (width / 32); i < (lane + 1) * (width / 32); ++i) sum += a[row * width + i];
  sum = simd_sum(sum);
  if (lane == 0) out[row] = sum;
}
kernel void softmax(device float* out, constant float* a, constant uint& width,
                    uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint from = row * width + lane * (width / 32), to = from + width / 32;
  float top = -INFINITY, sum = 0;
  for (uint i = from; i < to; ++i) top = max(top, a[i]);
  top = simd_max(top);
  for (uint i = from; i < to; ++i) sum += out[i] = exp(a[i] - top);
  sum = 1.0 / simd_sum(sum);
  for (uint i = from; i < to; ++i) out[i] *= sum;
}
// The same with threads that read the row in steps.
kernel void row_sum_by_steps(device float* out, constant float* a, constant uint& width,
                             uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float sum = 0;
  for (uint i = lane; i < width; i += 32) sum += a[row * width + i];
  sum = simd_sum(sum);
  if (lane == 0) out[row] = sum;
}
kernel void softmax_by_steps(device float* out, constant float* a, constant uint& width,
                             uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float top = -INFINITY, sum = 0;
  for (uint i = lane; i < width; i += 32) top = max(top, a[row * width + i]);
  top = simd_max(top);
  for (uint i = lane; i < width; i += 32) sum += out[row * width + i] = exp(a[row * width + i] - top);
  sum = 1.0 / simd_sum(sum);
  for (uint i = lane; i < width; i += 32) out[row * width + i] *= sum;
}
kernel void layer_norm(device float* out, constant float* a, constant uint& width,
                       uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint from = row * width + lane * (width / 32), to = from + width / 32;
  float sum = 0, square = 0;
  for (uint i = from; i < to; ++i) { sum += a[i]; square += a[i] * a[i]; }
  const float mean = simd_sum(sum) / width;
  const float scale = rsqrt(simd_sum(square) / width - mean * mean + 1e-5);
  for (uint i = from; i < to; ++i) out[i] = (a[i] - mean) * scale;
}
// A tree and tiles: threads meet in a loop, as often for all of them.
kernel void tree(device float* out, constant float* a, uint i [[thread_position_in_grid]],
                 uint l [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                 uint g [[threadgroup_position_in_grid]]) {
  threadgroup float parts[256];
  parts[l] = a[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = n / 2; step > 0; step /= 2) {
    if (l < step) parts[l] += parts[l + step];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (l == 0) out[g] = parts[0];
}
kernel void tiles(device float* c, constant float* a, constant float* b, constant uint& side,
                  uint2 p [[thread_position_in_grid]], uint2 l [[thread_position_in_threadgroup]]) {
  threadgroup float left[16][16], right[16][16];
  float sum = 0;
  for (uint k = 0; k < side; k += 16) {
    left[l.y][l.x] = a[p.y * side + k + l.x];
    right[l.y][l.x] = b[(k + l.y) * side + p.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < 16; ++i) sum += left[l.y][i] * right[i][l.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  c[p.y * side + p.x] = sum;
}
"""
COUNT = 1000
SHORT = 2e-3  # seconds: what takes less is timed several times in a row
CHECKED = "ANYMPS_CHECK_SHADERS"


def clock(function: Callable[[], object], times: int = 1) -> float:
    """Seconds of processor time of one call."""
    start = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - start) / times


@contextmanager
def checking() -> Iterator[None]:
    """Shaders that are compiled within are checked."""
    before = os.environ.get(CHECKED)
    os.environ[CHECKED] = "1"
    try:
        yield
    finally:
        os.environ.pop(CHECKED) if before is None else os.environ.update({CHECKED: before})


@contextmanager
def every_launch() -> Iterator[None]:
    """Within, each launch of the checked form is checked."""
    before = Samples._count
    Samples._count = lambda *_: 1  # type: ignore[method-assign]
    try:
        yield
    finally:
        Samples._count = before  # type: ignore[method-assign]


class Both:
    """A source twice: plain, and in the checked form."""

    def __init__(self, source: str, compile_shader: Callable[[str], Any]) -> None:
        self.plain = compile_shader(source)
        with checking():
            self.checked = compile_shader(source)


@dataclass
class Row:
    """A line of the table: what is timed, and the seconds of each round."""

    name: str
    ours: Callable[[], object]
    checked: Callable[[], object]
    eager: Callable[[], object]
    times: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def warm(self) -> None:
        """Runs all, and sees how many calls are long enough for the clock."""
        for name in ("ours", "eager", "checked"):
            function = getattr(self, name)
            function()
            self.times[name] = max(1, int(SHORT / max(clock(function), 1e-7)))
            self.seconds[name] = []

    def turn(self) -> None:
        """One round."""
        for name, times in self.times.items():
            self.seconds[name].append(clock(getattr(self, name), times))

    def ratio(self, over: str, under: str) -> str:
        """The median of a ratio, and its quartiles."""
        found = [a / b for a, b in zip(self.seconds[over], self.seconds[under], strict=True)]
        low, middle, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
        return f"{middle:9.2f} ({low:.2f} to {high:.2f})"

    def __str__(self) -> str:
        ms = 1e3 * statistics.median(self.seconds["ours"])
        ratios = f"{self.ratio('ours', 'eager'):>28}{self.ratio('checked', 'ours'):>28}"
        return f"{self.name:36}{ms:9.2f}{ratios}"


def row(
    name: str, both: Both, kernel: str, arguments: tuple[Any, ...], eager: Callable[[], object], **grid: Any
) -> Row:
    """A row of a kernel of the source above."""
    plain, checked = getattr(both.plain, kernel), getattr(both.checked, kernel)
    return Row(name, lambda: plain(*arguments, **grid), lambda: checked(*arguments, **grid), eager)


def pointwise(both: Both) -> Iterator[Row]:
    """Elements on their own."""
    size = 1 << 20
    a, b, out = torch.randn(size), torch.randn(size), torch.empty(size)
    am, bm, om = a.to("mps"), b.to("mps"), torch.empty(size, device="mps")
    yield row("add, 1M", both, "add", (om, am, bm), lambda: torch.add(a, b, out=out))
    yield row("exp * tanh, 1M", both, "exp_tanh", (om, am), lambda: torch.mul(a.exp(), a.tanh(), out=out))


def by_rows(both: Both, side: int) -> Iterator[Row]:
    """A row of a square matrix for each SIMD group."""
    x, out, sums = torch.randn(side, side), torch.empty(side, side), torch.empty(side)
    xm, om, sm = x.to("mps"), torch.empty(side, side, device="mps"), torch.empty(side, device="mps")
    grid = {"threads": side * 32, "group_size": 32}
    label = f"{side} x {side}"
    norm = torch.nn.functional.layer_norm
    yield row(f"sum, {label}", both, "row_sum", (sm, xm, side), lambda: torch.sum(x, 1, out=sums), **grid)
    yield row(f"softmax, {label}", both, "softmax", (om, xm, side), lambda: torch.softmax(x, 1, out=out), **grid)
    sum_of, softmax_of = "row_sum_by_steps", "softmax_by_steps"
    yield row(f"sum by steps, {label}", both, sum_of, (sm, xm, side), lambda: torch.sum(x, 1, out=sums), **grid)
    yield row(
        f"softmax by steps, {label}", both, softmax_of, (om, xm, side), lambda: torch.softmax(x, 1, out=out), **grid
    )
    yield row(f"layer norm, {label}", both, "layer_norm", (om, xm, side), lambda: norm(x, (side,)), **grid)


def in_loops(both: Both) -> Iterator[Row]:
    """Kernels whose threads meet inside a loop."""
    x, sums = torch.randn(1024, 256), torch.empty(1024)
    xm, sm = x.to("mps"), torch.empty(1024, device="mps")
    grid = {"threads": x.numel(), "group_size": 256}
    yield row("tree, 1024 groups of 256", both, "tree", (sm, xm), lambda: torch.sum(x, 1, out=sums), **grid)
    side = 256
    a, b, c = torch.randn(side, side), torch.randn(side, side), torch.empty(side, side)
    am, bm, cm = a.to("mps"), b.to("mps"), torch.empty(side, side, device="mps")
    square = {"threads": (side, side), "group_size": (16, 16)}
    yield row("tiled matrix product, 256", both, "tiles", (cm, am, bm, side), lambda: torch.mm(a, b, out=c), **square)


class Launches:
    """A library whose launches are noted, to be made again without Inductor's code around them."""

    def __init__(self, both: Both, launches: list[tuple[Callable[[], object], Callable[[], object]]]) -> None:
        self._both, self._launches = both, launches

    def __getattr__(self, name: str) -> Any:
        kernel, checked = getattr(self._both.plain, name), getattr(self._both.checked, name)

        def call(*args: Any, **sizes: Any) -> None:
            self._launches.append((lambda: kernel(*args, **sizes), lambda: checked(*args, **sizes)))
            kernel(*args, **sizes)

        return call


def by_inductor(rows: int, width: int) -> Iterator[Row]:
    """Reductions of rows as Inductor writes them."""
    x, out, sums = torch.randn(rows, width), torch.empty(rows, width), torch.empty(rows)
    xm = x.to("mps")
    norm = torch.nn.functional.layer_norm
    functions: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], Callable[[], object]]] = [
        ("sum", lambda a: a.sum(1), lambda: torch.sum(x, 1, out=sums)),
        ("softmax", lambda a: a.softmax(1), lambda: torch.softmax(x, 1, out=out)),
        ("maximum", lambda a: a.amax(1), lambda: torch.amax(x, 1, out=sums)),
        ("layer norm", lambda a: norm(a, (width,)), lambda: norm(x, (width,))),
    ]
    compile_shader = torch.mps.compile_shader
    for name, function, eager in functions:
        launches: list[tuple[Callable[[], object], Callable[[], object]]] = []
        torch._dynamo.reset()

        def noting(source: str, seen: list[Any] = launches) -> Any:
            return Launches(Both(source, compile_shader), seen)

        torch.mps.compile_shader = noting
        try:
            torch.compile(function, dynamic=False)(xm)
        finally:
            torch.mps.compile_shader = compile_shader
        ((launch, checked),) = launches
        yield Row(f"Inductor's {name}, {rows} of {width}", launch, checked, eager)


def compare(both: Both, rounds: int) -> None:
    """The table of ratios."""
    rows = [*by_inductor(16384, 64), *by_inductor(1024, 1024), *by_inductor(256, 4096)]
    rows += [*pointwise(both), *by_rows(both, 1024), *in_loops(both)]
    with every_launch():
        for one in rows:
            one.warm()
        for _ in range(rounds):
            for one in rows:
                one.turn()
    print(f"{'kernel':36}{'ms':>9}{'kernel / eager':>28}{'checked / kernel':>28}")
    for one in rows:
        print(one)


def costs(library: Any) -> None:
    """Launches, barriers and SIMD calls."""
    one, out = torch.zeros(1, device="mps"), torch.zeros(1024, dtype=torch.int32, device="mps")

    takes, number = library.takes, torch.tensor(2.5)
    launches: dict[str, Callable[[], object]] = {
        "launch": lambda: library.nothing(one),
        "launch with a number": lambda: takes(one, 3),
        "launch with a bool": lambda: takes(one, True),
        "launch with arg_casts": lambda: takes(one, 3, arg_casts={1: "int32"}),
        "launch with arg_casts to a half": lambda: takes(one, 0.5, arg_casts={1: "fp16"}),
        "launch with a list of numbers": lambda: takes(one, [1.0, 2.0, 3.0]),
        "launch with a list of tensors": lambda: takes(one, [one, one]),
        "launch with a number on the CPU": lambda: takes(one, number),
    }
    for name, launch in launches.items():
        print(f"{name:36}{min(clock(launch, COUNT) for _ in range(9)) * 1e6:9.2f} us")
    for name, unit in (("barriers", "barrier, each thread"), ("votes", "SIMD call, each thread")):
        for group in (256, 1024):

            def run(name: str = name, group: int = group) -> None:
                getattr(library, name)(out, COUNT, threads=group, group_size=group)

            run()
            best = min(clock(run) for _ in range(3)) / COUNT / group
            print(f"{unit + f' of {group}':36}{best * 1e9:9.2f} ns")


def compiling() -> None:
    """One kernel, and the whole source above; the runtime and the headers are there. By the clock on the wall."""
    one = "kernel void f(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1.0; }"
    for name, source in (("compile one kernel", one), ("compile all kernels", SOURCE)):
        seconds = min(wall("\n// ".join((source, str(uuid.uuid4())))) for _ in range(3))
        print(f"{name:36}{seconds * 1e3:9.0f} ms")
    print(f"{'the same from the cache':36}{wall(SOURCE) * 1e3:9.1f} ms")


def wall(source: str) -> float:
    """Seconds until a source is compiled, the compiler's own process included."""
    start = time.perf_counter()
    torch.mps.compile_shader(source)
    return time.perf_counter() - start


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    anymps.enable(quiet=True)
    torch.set_num_threads(arguments.threads)
    both = Both(SOURCE, torch.mps.compile_shader)
    print(f"torch {torch.__version__}, {arguments.threads} thread(s), {arguments.rounds} rounds, processor time")
    compare(both, arguments.rounds)
    costs(both.plain)
    compiling()


if __name__ == "__main__":
    main()
