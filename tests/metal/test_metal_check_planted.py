"""Faults that are planted in random kernels: the checker finds each of them at its line, at every launch."""

from __future__ import annotations

import contextlib
import os
import random

import pytest
import torch

import random_shaders
from anymps.metal import take_shader_faults

pytestmark = pytest.mark.usefixtures("virtual_device")

KERNELS = 16
SEED = int(os.environ.get("ANYMPS_FUZZ_SEED", "0"))
_USED = "atomic_fetch_add_explicit(count, 1, memory_order_relaxed);"
PLANTED = (
    f"  if (x[i + 96] > 1e30f) {_USED}",
    f"  if (x[int(i) - 100] > 1e30f) {_USED}",
    "  ((device float*)x)[i + 96] = 1;",
    "  ((device float*)x)[0] = float(i);",
    f"  threadgroup float tq[64]; tq[l] = r; if (tq[(l + 1) % s] > 1e30f) {_USED}",
    "  threadgroup float tq[64]; tq[l + 64] = r;",
    f"  float tp[4] = {{r, r, r, r}}; if (tp[l % 7] > 1e30f) {_USED}",
    f"  float q; if (l > 1000) q = r; if (q > 1e30f) {_USED}",
)


@pytest.mark.filterwarnings("ignore::anymps.metal.ShaderFaultWarning")
def test_every_planted_fault_is_found_at_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and writes beside buffers and arrays, races, and a variable that is not set; each kind twice."""
    monkeypatch.setenv("ANYMPS_CHECK_SHADERS", "1")
    text, outputs = random_shaders.source(random.Random(SEED).randint, KERNELS)
    head, *kernels = text.split("kernel void k")
    for number, kernel in enumerate(kernels):
        lines = kernel.split("\n")
        last = max(i for i, line in enumerate(lines) if line.startswith(("  o[i] =", "  device")))
        lines.insert(last, PLANTED[number % len(PLANTED)])
        kernels[number] = "\n".join(lines)
    text = "kernel void k".join((head, *kernels))
    library = torch.mps.compile_shader(text)
    for number, output in enumerate(outputs):
        start = text.index(f"kernel void k{number}(")
        line = text.count("\n", 0, text.index(PLANTED[number % len(PLANTED)], start)) + 1
        dtype, parts = random_shaders.TYPES[output]
        for _ in range(2):
            out = torch.zeros(random_shaders.THREADS * parts, dtype=getattr(torch, dtype), device="mps")
            x = torch.arange(float(random_shaders.THREADS), device="mps") % 23
            count = torch.zeros(1, dtype=torch.int32, device="mps")
            take_shader_faults()
            with contextlib.suppress(RuntimeError):  # what ends the kernel is found, too
                getattr(library, f"k{number}")(
                    *(out, x, random_shaders.THREADS, count),
                    threads=random_shaders.THREADS,
                    group_size=random_shaders.GROUP,
                )
            found = take_shader_faults()
            assert any(fault.line == line for fault in found), (PLANTED[number % len(PLANTED)], found)
