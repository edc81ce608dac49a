"""MPS851 to MPS859: what the checker of Metal kernels found (`--check-shaders`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Recording

_SPECIFICATION: Final = "Metal Shading Language Specification"
_C: Final = "ISO/IEC 14882:2014 (C++14), on which Metal is based"
_BARRIERS: Final = "Threadgroup and SIMD-Group Synchronization Functions"
_INDUCTOR: Final = "generated_kernel"
"""How the names of the kernels begin that `torch.compile` writes (torch/_inductor/codegen/mps.py)."""


def _example(bad: str, good: str, arguments: str = "", made: str = "torch.ones(64, device=device)") -> Example:
    """A kernel `f` that is launched once; the two halves differ in its source."""
    halves = [
        f'library = torch.mps.compile_shader("""\n{source.strip()}\n""")\n'
        f"library.f({made}{arguments}, threads=64, group_size=64)"
        for source in (bad, good)
    ]
    return Example(bad=halves[0], good=halves[1], check_shaders=True)


OUTSIDE = Rule(
    id="MPS851",
    title="Metal kernel accesses memory out of bounds",
    why=(
        "A Mac does not stop there: a read returns the memory next to the buffer, possibly another tensor, and a "
        "write corrupts it. The checked run reads zeros and drops the write."
    ),
    fix="Compare the position with the number of elements before the access, or launch only one thread per element.",
    source=f"{_C}, 5.7: a pointer beyond its array is undefined",
    example=_example(
        """
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {
  x[i + 1] = 0;
}
""",
        """
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {
  x[i] = 0;
}
""",
    ),
)

RACE = Rule(
    id="MPS852",
    title="Race between threads of a Metal kernel",
    why=(
        "Threads of a group run in any order. If one writes memory that another reads or writes, without a barrier "
        "for that memory in between, the result differs from Mac to Mac and from run to run."
    ),
    fix=(
        "Put `threadgroup_barrier(mem_flags::mem_threadgroup)` between the two, with `mem_flags::mem_device` for a "
        "buffer, or use an atomic. Within a SIMD group `simdgroup_barrier` is enough."
    ),
    source=f"{_SPECIFICATION}, {_BARRIERS}: a barrier orders the memory that its flags name",
    example=_example(
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  float next = x[(i + 1) % 64];
  x[i] = next;
}
""",
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  float next = x[(i + 1) % 64];
  metal::threadgroup_barrier(metal::mem_flags::mem_device);
  x[i] = next;
}
""",
    ),
)

BARRIER = Rule(
    id="MPS853",
    title="Barrier that not all threads reach",
    why="All threads of a group must reach the same barrier. Otherwise a Mac may hang, or continue too early.",
    fix="Move the barrier out of branches and loops that differ between threads, and return only after it.",
    source=f"{_SPECIFICATION}, {_BARRIERS}: all threads reach a barrier in a conditional, or none",
    example=_example(
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  if (i >= 40) return;
  metal::threadgroup_barrier(metal::mem_flags::mem_device);
  x[i] = 0;
}
""",
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  metal::threadgroup_barrier(metal::mem_flags::mem_device);
  if (i >= 40) return;
  x[i] = 0;
}
""",
    ),
)

UNINITIALISED = Rule(
    id="MPS854",
    title="Threadgroup memory read before it is written",
    why="The memory has the values that another group or another kernel left there.",
    fix="Write every element before it is read, zeros if nothing else, and put a barrier after the writes.",
    source=f"{_C}, 8.5: a variable without an initial value has an indeterminate one",
    example=_example(
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float sum[64];
  sum[i] += x[i];
  x[i] = sum[i];
}
""",
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float sum[64];
  sum[i] = x[i];
  x[i] = sum[i];
}
""",
    ),
)

ARITHMETIC = Rule(
    id="MPS855",
    title="Undefined integer arithmetic",
    why="A division by zero, or a shift by more bits than the type has, gives any number on a Mac and no error.",
    fix="Test the divisor or the count first.",
    source=f"{_C}, 5.6 and 5.8: the result is undefined",
    example=_example(
        """
kernel void f(device int* x, constant int& by, uint i [[thread_position_in_grid]]) {
  x[i] = x[i] << by;
}
""",
        """
kernel void f(device int* x, constant int& by, uint i [[thread_position_in_grid]]) {
  x[i] = by < 32 ? x[i] << by : 0;
}
""",
        ", 40",
        "torch.ones(64, dtype=torch.int32, device=device)",
    ),
)

LANES = Rule(
    id="MPS856",
    title="SIMD call that reads an inactive lane",
    why="A lane that has returned, took another branch, or is beyond the end of the group gives an undefined value.",
    fix="Call it where all lanes of the SIMD group are active, in groups of a multiple of 32 threads.",
    source=f"{_SPECIFICATION}, SIMD-Group Functions: the value of an inactive lane is undefined",
    example=_example(
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  if (i % 2 == 0) x[i] = metal::simd_shuffle_xor(x[i], 1);
}
""",
        """
kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) {
  float other = metal::simd_shuffle_xor(x[i], 1);
  if (i % 2 == 0) x[i] = other;
}
""",
    ),
)

ARGUMENTS = Rule(
    id="MPS857",
    title="Arguments of a Metal kernel do not match its parameters",
    why=(
        "`torch.mps.compile_shader` passes raw bytes and checks no types: tensors lose their dtype and strides, an int "
        "becomes 8 bytes, a float a float32. The kernel reads them as its own parameters declare."
    ),
    fix=(
        "Pass a tensor of the kernel's type that is contiguous, or pass its strides as arguments. Set a number's type "
        "with `arg_casts`."
    ),
    source=(
        "torch 2.7 to 2.15, torch/csrc/mps/Module.cpp, and aten/src/ATen/native/mps/OperationUtils.h, mtl_setBuffer: "
        "the storage at its offset"
    ),
    example=_example(
        """
kernel void f(device float* x, constant float& by, uint i [[thread_position_in_grid]]) {
  x[i] *= by;
}
""",
        """
kernel void f(device float* x, constant int& by, uint i [[thread_position_in_grid]]) {
  x[i] *= by;
}
""",
        ", 2",
    ),
)

MISALIGNED = Rule(
    id="MPS858",
    title="Metal kernel reads a vector at a misaligned address",
    why=(
        "A `float4` must be at a multiple of 16 bytes, a `float2` of 8, a `uint` of 4. Metal does not check that: "
        "values can be wrong without an error."
    ),
    fix="Read a `packed_float4`, which only needs the alignment of its element, or read element by element.",
    source=(
        f"{_SPECIFICATION}, Vector Data Types and Packed Vector Types: sizes and alignments; a kernel that read wrong "
        "values at such an address without an error: ikawrakow/ik_llama.cpp pull request 87"
    ),
    example=_example(
        """
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {
  device float4* v = (device float4*)(x + 1);
  if (i < 15) v[i] = 0;
}
""",
        """
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {
  device packed_float4* v = (device packed_float4*)(x + 1);
  if (i < 15) v[i] = float4(0);
}
""",
    ),
)

UNSET = Rule(
    id="MPS859",
    title="Variable of a Metal kernel read before it is written",
    why="It has the value that the register happened to have: often zero on a Mac, but not always.",
    fix="Give the variable a value where it is declared.",
    source=f"{_C}, 8.5: a variable without an initial value has an indeterminate one",
    example=_example(
        """
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {
  float sum;
  sum += x[i];
  x[i] = sum;
}
""",
        """
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {
  float sum = 0;
  sum += x[i];
  x[i] = sum;
}
""",
    ),
)

_RULE_OF: Final = {
    "outside": OUTSIDE,
    "wild": OUTSIDE,
    "index": OUTSIDE,
    "narrow": OUTSIDE,
    "race": RACE,
    "same_value": RACE,
    "lost_add": RACE,
    "partial_sum": RACE,
    "places": BARRIER,
    "missing": BARRIER,
    "simd_missing": BARRIER,
    "uninitialised": UNINITIALISED,
    "division": ARITHMETIC,
    "shift": ARITHMETIC,
    "lane": LANES,
    "matrix": LANES,
    "dtype": ARGUMENTS,
    "number": ARGUMENTS,
    "strides": ARGUMENTS,
    "extra": ARGUMENTS,
    "misaligned": MISALIGNED,
    "unset": UNSET,
    "unset_maybe": UNSET,
}
_SEVERITY: Final = {
    "same_value": Severity.INFO,  # any order gives the same
    "partial_sum": Severity.WARNING,  # a kernel may look at a sum as it grows
    "missing": Severity.WARNING,  # threads that have returned are not waited for on the Macs of today
    "simd_missing": Severity.WARNING,
    "strides": Severity.WARNING,  # the storage as it is may be meant
    "extra": Severity.WARNING,
    "unset_maybe": Severity.WARNING,  # the path that leaves it unset may never be taken
    "shift": Severity.WARNING,  # the GPUs of today take the count modulo the width
}
_OF_INDUCTOR: Final = {
    "race": Severity.WARNING,  # running statistics of a batch norm, which all threads update in place
    "lane": Severity.INFO,  # sums of c10/metal over groups that are no multiple of 32
}
_NOT_YOURS: Final = "`torch.compile` generated this kernel: there is nothing to fix in your code."


def find(recording: Recording) -> Iterator[Finding]:
    """One for each kernel, line of it, kind, and line that launched it.

    Kernels of Inductor store results of a reduction from every thread: that they all write the same is left out there.
    """
    for noted in recording.noted("shader"):
        kind = str(noted.facts.get("kind"))
        rule = _RULE_OF.get(kind)
        by_inductor = str(noted.facts.get("kernel")).startswith(_INDUCTOR)
        if rule is None or (by_inductor and kind == "same_value"):
            continue
        severity = _SEVERITY.get(kind, rule.severity)
        yield rule.finding(
            noted.occurrence.site,
            what=str(noted.facts.get("what")),
            count=noted.occurrence.count,
            severity=_OF_INDUCTOR.get(kind, severity) if by_inductor else severity,
            fix=_NOT_YOURS if by_inductor else "",
        )
