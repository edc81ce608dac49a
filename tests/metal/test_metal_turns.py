"""Loops that go through a row by strides run turn by turn for many threads, and give what each thread alone gives."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch

import random_turns
from anymps.metal._runtime import GROUPS
from anymps.metal.compilation._compile import FIBERS_VARIABLE
from anymps.metal.translation._rewrite import translate
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

KERNELS = 12
EXAMPLES = int(os.environ.get("ANYMPS_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("ANYMPS_FUZZ_SEED", "0"))
TURNS = "anymps_fission::Turns<"


def both(monkeypatch: pytest.MonkeyPatch, text: str) -> list[Any]:
    """The library of a source as loops over threads, and as fibers."""
    libraries = []
    for value in ("", "1"):
        monkeypatch.setenv(FIBERS_VARIABLE, value)
        libraries.append(torch.mps.compile_shader(text))
    return libraries


def turned(text: str) -> dict[str, int]:
    """How many loops of each kernel of a source are done so; the kernel needs no fibers."""
    groups = {kernel.name: kernel.group for kernel in translate(text, frozenset(), True, True).kernels}
    return {name: group.text.count(TURNS) for name, group in groups.items() if group is not None}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(max(1, EXAMPLES // KERNELS)))
def test_random_loops_give_the_bits_of_fibers(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Any starts, bounds and steps, sums that round, stores, threads that have returned, groups of any size."""
    rng = random.Random(SEED * 1000 + number)
    text = random_turns.source(rng.randint, KERNELS)
    assert EXAMPLES or sum(turned(text).values()) > KERNELS // 3  # of a seed that is known
    libraries = both(monkeypatch, text)
    torch.manual_seed(number)
    x = torch.randn(random_turns.LENGTH)
    given = [one.to("mps") for one in (x, (x * 9).int(), x.half())]
    for kernel in range(KERNELS):
        size, n = rng.choice(random_turns.SIZES), rng.randint(1, 400)
        results = []
        for library in libraries:
            out = torch.zeros(random_turns.THREADS, device="mps")
            stored = torch.ones(random_turns.ROWS * random_turns.ROW * (random_turns.THREADS // size + 1), device="mps")
            run = getattr(library, f"k{kernel}")
            run(out, stored, *given, n, threads=random_turns.THREADS, group_size=size)
            results.append((out.cpu().view(torch.int32), stored.cpu().view(torch.int32)))
        assert libraries[0].__getattr__(f"k{kernel}")._entry.form == GROUPS
        for left, right in zip(*results, strict=True):
            assert torch.equal(left, right), f"k{kernel} of {size} threads, n = {n}"


LOOPS = {
    "for (uint j = l; j < n; j += s) v += x[j];": 1,
    "for (int j = l + 3; j < n; j += 32) { const float t = x[g * n + j]; v += t * t; }": 1,
    "for (uint j = l; j < n; ++j) o[j] = max(x[j], v);": 1,
    "for (uint j = l; j < n; j += s) v += o[j] = exp(x[j]);": 1,
    # The same for all threads, or at a distance between threads: other forms are as fast.
    "for (uint j = 0; j < n; ++j) v += x[j];": 0,
    "for (uint j = l * n; j < l * n + n; ++j) v += x[j];": 0,
    "for (uint j = l; j < n; j += s) v += x[j * 2];": 0,
    # The head changes on the way, or the body leaves it early.
    "for (uint j = l; j < n; j += s) { v += x[j]; if (v > 3) break; }": 0,
    "for (uint j = l; j < n; j += l + 1) v += x[j];": 0,
    "uint e = n; for (uint j = l; j < e; j += s) { v += x[j]; e -= 1; }": 0,
    "for (uint j = l; j < uint(x[0]); j += s) v += x[j];": 0,
    # What may not happen at all, or happens elsewhere.
    "for (uint j = l; j < n; j += s) v += j > 4 ? x[j] : 0;": 0,
    "for (uint j = l; j < n; j += s) if (j > 4) v += x[j];": 0,
    "for (uint j = l; j < n; j += s) v += twice(x[j]);": 0,
    "for (uint j = l; j < n; j += s) atomic_fetch_add_explicit(count, 1, memory_order_relaxed);": 0,
    # A store before a read, which may be of the same element.
    "for (uint j = l; j < n; j += s) { o[j] = v; v += x[j]; }": 0,
    "for (uint j = l; j < n; j += s) { o[j] = v; o[j + n] = v; }": 0,
    "for (uint j = l; j < n; j += s) v += x[j] + (o[j] = v);": 0,
    # References, which need no reading here.
    "for (uint j = l; j < n; j += s) { const device float& t = x[j]; v += t; }": 0,
    "threadgroup float t[64]; for (uint j = 0; j < 4; ++j) { threadgroup float& u = t[l]; u = v; v += t[l]; }": 0,
    # An element at a place that the body makes.
    "for (uint j = l; j < n; j += s) { const uint k = j + 1; v += x[k]; }": 0,
    "float a[4] = {v, v, v, v}; for (uint j = l; j < n; j += s) a[j % 4] += x[j]; v = a[l % 4];": 0,
}


@pytest.mark.parametrize("loop", list(LOOPS))
def test_which_loops_are_done_so(loop: str) -> None:
    """A kernel with any other loop keeps the form that it has without this."""
    text = (
        HEAD
        + f"""
static float twice(float v) {{ return v + v; }}
kernel void one(device float* o, device const float* x, constant uint& n, device atomic_int* count,
                uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]],
                uint s [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]]) {{
  float v = simd_sum(x[i]);
  {loop}
  o[i] = v;
}}"""
    )
    assert turned(text) == {"one": LOOPS[loop]}


EDGES = (
    HEAD
    + """
kernel void up_to(device float* o, device const float* x, constant uint& end, constant uint& step,
                  uint l [[thread_index_in_threadgroup]]) {
  float v = simd_sum(x[l]);
  for (uint j = l; j < end; j += step) v += x[j];
  o[l] = v;
}
kernel void below_zero(device float* o, device const float* x, constant int& end, constant int& first,
                       uint l [[thread_index_in_threadgroup]]) {
  float v = simd_sum(x[l]);
  for (int j = first + l; j < end; j += 32) v += x[j + 100];
  o[l] = v;
}
"""
)


def test_counters_that_wrap_and_negative_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last turn's counter passes the end of its type, or the first is below zero: thread by thread."""
    x = torch.randn(400).to("mps")
    assert turned(EDGES) == {"up_to": 1, "below_zero": 1}
    for name, one, other in (
        ("up_to", 32, 2**32 - 1),  # 0, and 2**32 - 1 more is past the end
        ("up_to", 300, 2**31),
        ("up_to", 300, 32),
        ("below_zero", 250, -70),
        ("below_zero", -3, -90),
        ("below_zero", 250, 4),
    ):
        results = []
        for library in both(monkeypatch, EDGES):
            out = torch.zeros(32, device="mps")
            getattr(library, name)(out, x, one, other, threads=32, group_size=32)
            results.append(out.cpu().view(torch.int32))
        assert torch.equal(*results), (name, one, other)
