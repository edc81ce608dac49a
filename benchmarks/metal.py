"""What Metal shaders cost on this machine: ratios to eager CPU torch, launches, fibers and compile times.

    python benchmarks/metal.py [--rounds N] [--threads N]

Reductions are those of `torch.compile`, and three by hand. One interleaved run: every round times each kernel and its
eager counterpart, one after the other, so that a change of the machine's speed meets both alike. A ratio is the median
over rounds of (kernel / eager) in the same round. Results are preallocated on both sides, except for eager layer norm.
Compile times are of sources that no cache knows.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

import anymps

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
kernel void barriers(device int* out, constant int& count, uint i [[thread_position_in_grid]]) {
  for (int n = 0; n < count; ++n) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = count;
}
kernel void votes(device int* out, constant int& count, uint i [[thread_position_in_grid]]) {
  int sum = 0;
  for (int n = 0; n < count; ++n) sum += simd_sum(1);
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
kernel void layer_norm(device float* out, constant float* a, constant uint& width,
                       uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint from = row * width + lane * (width / 32), to = from + width / 32;
  float sum = 0, square = 0;
  for (uint i = from; i < to; ++i) { sum += a[i]; square += a[i] * a[i]; }
  const float mean = simd_sum(sum) / width;
  const float scale = rsqrt(simd_sum(square) / width - mean * mean + 1e-5);
  for (uint i = from; i < to; ++i) out[i] = (a[i] - mean) * scale;
}
"""
COUNT = 1000


def clock(function: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def ratio(rounds: int, ours: Callable[[], object], eager: Callable[[], object]) -> tuple[float, float]:
    """The median ratio, and the median time of ours in ms."""
    for function in (ours, eager):
        function()
    pairs = [(clock(ours), clock(eager)) for _ in range(rounds)]
    return statistics.median(a / b for a, b in pairs), 1e3 * statistics.median(a for a, _ in pairs)


Row = tuple[str, Callable[[], object], Callable[[], object]]  # name, our kernel, eager torch


def pointwise(library: Any, size: int) -> list[Row]:
    """Elements on their own."""
    a, b, out = torch.randn(size), torch.randn(size), torch.empty(size)
    am, bm, om = a.to("mps"), b.to("mps"), torch.empty(size, device="mps")
    label = f"{size >> 20}M"
    return [
        (f"add {label}", lambda: library.add(om, am, bm), lambda: torch.add(a, b, out=out)),
        (f"exp * tanh {label}", lambda: library.exp_tanh(om, am), lambda: torch.mul(a.exp(), a.tanh(), out=out)),
    ]


def by_rows(library: Any, side: int) -> list[Row]:
    """A row of a square matrix for each SIMD group."""
    x, out, sums = torch.randn(side, side), torch.empty(side, side), torch.empty(side)
    xm, om, sm = x.to("mps"), torch.empty(side, side, device="mps"), torch.empty(side, device="mps")
    grid = {"threads": side * 32, "group_size": 32}
    label = f"{side} x {side}"
    norm = torch.nn.functional.layer_norm
    return [
        (f"sum {label}", lambda: library.row_sum(sm, xm, side, **grid), lambda: torch.sum(x, 1, out=sums)),
        (f"softmax {label}", lambda: library.softmax(om, xm, side, **grid), lambda: torch.softmax(x, 1, out=out)),
        (f"layer norm {label}", lambda: library.layer_norm(om, xm, side, **grid), lambda: norm(x, (side,))),
    ]


class Launches:
    """A library whose launches are noted, to be made again without Inductor's code around them."""

    def __init__(self, library: Any, launches: list[Callable[[], object]]) -> None:
        self._library, self._launches = library, launches

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._library, name)

        def call(*args: Any, **sizes: Any) -> None:
            self._launches.append(lambda: kernel(*args, **sizes))
            kernel(*args, **sizes)

        return call


def by_inductor(rows: int, width: int) -> list[Row]:
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
    found: list[Row] = []
    compile_shader = torch.mps.compile_shader
    for name, function, eager in functions:
        launches: list[Callable[[], object]] = []
        torch._dynamo.reset()
        torch.mps.compile_shader = lambda source, seen=launches: Launches(compile_shader(source), seen)  # type: ignore[assignment]
        try:
            torch.compile(function, dynamic=False)(xm)
        finally:
            torch.mps.compile_shader = compile_shader
        (launch,) = launches
        found.append((f"Inductor's {name}, {rows} of {width}", launch, eager))
    return found


def compare(library: Any, rounds: int) -> None:
    """The table of ratios."""
    print(f"{'kernel':38}{'ms':>9}{'kernel / eager':>16}")
    for sizes in ((16384, 64), (1024, 1024), (1024, 4096)):
        for name, ours, eager in by_inductor(*sizes):
            found, ms = ratio(rounds, ours, eager)
            print(f"{name:38}{ms:9.2f}{found:16.2f}")
    for make, sizes in ((pointwise, (1 << 20, 1 << 24)), (by_rows, (1024, 4096))):
        for size in sizes:
            for name, ours, eager in make(library, size):
                found, ms = ratio(rounds, ours, eager)
                print(f"{name:38}{ms:9.2f}{found:16.2f}")


def costs(library: Any) -> None:
    """Launches, barriers and SIMD calls."""
    one, out = torch.zeros(1, device="mps"), torch.zeros(1024, dtype=torch.int32, device="mps")

    def launches() -> None:
        for _ in range(COUNT):
            library.nothing(one)

    launches()
    print(f"{'launch':38}{min(clock(launches) for _ in range(5)) / COUNT * 1e6:9.2f} us")
    for name, unit in (("barriers", "barrier, each thread"), ("votes", "SIMD call, each thread")):
        for group in (256, 1024):

            def run(name: str = name, group: int = group) -> None:
                getattr(library, name)(out, COUNT, threads=group, group_size=group)

            run()
            best = min(clock(run) for _ in range(3)) / COUNT / group
            print(f"{unit + f' of {group}':38}{best * 1e9:9.2f} ns")


def compiling() -> None:
    """One kernel, and the whole source above; the runtime and the headers are there."""
    one = "kernel void f(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1.0; }"
    for name, source in (("compile one kernel", one), ("compile eight kernels", SOURCE)):
        seconds = [clock(lambda s=source: torch.mps.compile_shader(f"{s}\n// {uuid.uuid4()}")) for _ in range(3)]
        print(f"{name:38}{min(seconds) * 1e3:9.0f} ms")
    print(f"{'the same from the cache':38}{clock(lambda: torch.mps.compile_shader(SOURCE)) * 1e3:9.1f} ms")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    anymps.enable(quiet=True)
    torch.set_num_threads(arguments.threads)
    library = torch.mps.compile_shader(SOURCE)
    print(f"torch {torch.__version__}, {arguments.threads} thread(s), {arguments.rounds} rounds")
    compare(library, arguments.rounds)
    costs(library)
    compiling()


if __name__ == "__main__":
    main()
