"""Faults planted in the kernels of a compiled extension: the checker finds each at its line of the Metal text."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch

from anymps.metal import ShaderFault, ShaderFaultWarning, take_shader_faults
from metal.stable_extension import extension
from metal_shaders import HEAD

pytestmark = [
    pytest.mark.usefixtures("virtual_device", "no_faults_left"),
    pytest.mark.skipif(torch.__version__ < (2, 13), reason="the stable ABI hands on no texts of errors"),
]

# Sums of neighbours in threadgroup memory. `x` has 128 numbers, `n` is 128, the bytes are 12 of a float3.
CLEAN = (
    HEAD
    + """
kernel void sums(device float* out, device const float* x, constant long& n, constant packed_float3& by,
                 uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]]) {
  threadgroup float seen[64];
  threadgroup atomic_int total;
  if (l == 0) atomic_store_explicit(&total, 0, memory_order_relaxed);
  seen[l] = x[i] * by[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = seen[l];
  sum += seen[63 - l];
  atomic_fetch_add_explicit(&total, 1, memory_order_relaxed);
  out[i] = sum;
}
"""
)
STORE, SUM, OUT = "  seen[l] = x[i] * by[0];", "  sum += seen[63 - l];", "  out[i] = sum;"
BARRIER = "  threadgroup_barrier(mem_flags::mem_threadgroup);"
# What is replaced, by what, and what is said of the line.
PLANTED = {
    "read past the end": (STORE, "  seen[l] = x[i + 1] * by[0];", "reads past the end of argument 1"),
    "read before the start": (STORE, "  seen[l] = x[int(i) - 1] * by[0];", "reads before the start of argument 1"),
    "write past the end": (OUT, "  out[i + 1] = sum;", "writes past the end of argument 0"),
    "write before the start": (OUT, "  out[int(i) - 1] = sum;", "writes before the start of argument 0"),
    "past threadgroup memory": (SUM, "  sum += seen[64 - l];", "takes the element 64 of a `float[64]`"),
    "no barrier": (BARRIER, "  ;", None),
    "barrier for other memory": (BARRIER, BARRIER.replace("mem_threadgroup", "mem_device"), None),
    "race in a buffer": (OUT, "  out[i / 2] = sum + l;", "writes argument 0"),
    "unwritten threadgroup memory": (STORE, "  if (l != 5) seen[l] = x[i] * by[0];", None),
    "barrier in a branch": (BARRIER, f"  if (l < 32) {BARRIER.strip()}", "reaches a barrier"),
    "misaligned vector": (OUT, "  *((device float4*)(out + 1)) = float4(sum);", "at a misaligned address"),
    "unset variable": ("  float sum = seen[l];", "  float sum; if (l > 99) sum = seen[l];", None),
    "shift by the width": (OUT, "  out[i] = sum + (1 << int(n));", "shifts a value of type `int` by 128"),
    "division by zero": (OUT, "  out[i] = sum + int(n) / int(n - 128);", "divides an integer by zero"),
}
# Where another line than the planted one is what goes wrong.
ELSEWHERE = {
    "no barrier": (SUM, "reads threadgroup memory"),
    "barrier for other memory": (SUM, "reads threadgroup memory"),
    "unwritten threadgroup memory": ("  float sum = seen[l];", "reads threadgroup memory"),
    "unset variable": (SUM, "sum"),
}


def _faults(source: str) -> list[ShaderFault]:
    """The faults of a launch of two groups by the extension."""
    out, x = torch.zeros(128, device="mps"), torch.ones(128, device="mps")
    by = torch.tensor([2.0, 0, 0]).view(torch.uint8)
    take_shader_faults()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShaderFaultWarning)
        with contextlib.suppress(RuntimeError):  # what ends the kernel is found, too
            extension().launch(source, "sums", [out, x], [128], by, [128], [64])
    return take_shader_faults()


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shaders of extensions are compiled in their checked form."""
    monkeypatch.setenv("ANYMPS_CHECK_SHADERS", "1")


def test_nothing_is_found_in_the_clean_kernel() -> None:
    """Or what is found below would say little."""
    assert _faults(CLEAN) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found_at_its_line(planted: str) -> None:
    """In the extension's own text, in words that name it."""
    old, new, said = PLANTED[planted]
    assert CLEAN.count(old) == 1
    source = CLEAN.replace(old, new)
    line, text = (new, said) if said is not None else ELSEWHERE[planted]
    number = source.split("\n").index(line) + 1
    faults = _faults(source)
    assert any(fault.line == number and text in fault.what for fault in faults), faults
