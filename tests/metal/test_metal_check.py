"""The checker of Metal kernels: planted faults at their lines, whole sentences, and clean kernels that give nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import anymps
from anymps.findings import Severity, find
from anymps.metal import ShaderFaultWarning
from metal.forms import error_of
from metal_shaders import BASICS, HEAD
from shader_faults import compile_checked, said_of

pytestmark = pytest.mark.usefixtures("virtual_device", "no_faults_left")

FAULTY = (
    HEAD
    + """
kernel void saxpy(device float* y, constant float* x, constant float& a, uint i [[thread_position_in_grid]]) {
  y[i] += a * x[i];
}
kernel void before(device float* y, uint i [[thread_position_in_grid]]) { y[int(i) - 1] = 1; }
kernel void wild(device float* x, constant long& by, uint i [[thread_position_in_grid]]) {
  x[i + by] = 1.0;
}
kernel void race(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  a[i] = x[i];
  x[i] = a[63 - i];
}
kernel void shifted(device float* y, device const float* x, uint i [[thread_position_in_grid]]) {
  y[i] = x[(i + 1) % 64];
}
kernel void wrong_flag(device float* x, uint i [[thread_index_in_threadgroup]]) {
  x[i] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float other = x[63 - i];
  threadgroup_barrier(mem_flags::mem_device);
  x[i] += other;
}
kernel void same(device float* x) {
  x[0] = 1;
}
kernel void unwritten(device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float a[65];
  a[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = a[i + 1];
}
kernel void places(device float* x, uint i [[thread_index_in_threadgroup]]) {
  if (i < 32)
    threadgroup_barrier(mem_flags::mem_threadgroup);
  else
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
kernel void early(device float* x, constant int& n, uint i [[thread_index_in_threadgroup]]) {
  if (int(i) >= n) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
kernel void shifts(device int* x, constant int& n, uint i [[thread_position_in_grid]]) {
  x[i] = x[i] << n;
}
kernel void divides(device int* x, constant int& n, uint i [[thread_position_in_grid]]) {
  x[i] = 7 / n;
}
kernel void element(device float* x, constant int& n) {
  float a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int j = 0; j < n; ++j) x[0] += a[j];
}
kernel void lanes(device int* x, uint i [[thread_index_in_threadgroup]]) {
  if (i % 3 == 0)
    x[i] = simd_shuffle_xor(int(i), 1);
}
kernel void without_lanes(device float* x, uint i [[thread_index_in_threadgroup]]) {
  if (i < 8) return;
  simdgroup_barrier(mem_flags::mem_device);
}
template <typename T> void store(device T* x, int i, T value) {
  x[i] = value;
}
kernel void helped(device float* x) { store(x, 64, 2.0f); }
kernel void matrices(device float* x, uint i [[thread_index_in_threadgroup]]) {
  simdgroup_float8x8 a;
  simdgroup_load(a, x, 8);
  if (i < 20) simdgroup_multiply(a, a, a);
}
"""
)
LINES = FAULTY.splitlines()


@pytest.fixture(scope="module")
def faulty() -> Any:
    """The kernels above in their checked form."""
    return compile_checked(FAULTY)


def _floats(count: int = 64) -> torch.Tensor:
    return torch.ones(count, device="mps")


def _at(line: str, after: int = 1) -> str:
    """`at line 5, `y[i] += a * x[i];``: the first such line of the source behind the line `after`."""
    number = next(i for i, text in enumerate(LINES, 1) if i >= after and text.strip() == line)
    return f"at line {number}, `{line}`"


def _line_of(text: str) -> int:
    return next(i for i, line in enumerate(LINES, 1) if text in line)


GROUP = {"threads": 64, "group_size": 64}


def test_reads_and_writes_outside_of_a_buffer(faulty: Any) -> None:
    """Behind the end and before the start, at the line; what lies beside stays, and the others are computed."""
    y, x = torch.zeros(200, device="mps"), _floats(100)
    beside = _floats(1000)
    assert said_of(faulty.saxpy, y, x, 2.0, threads=110) == [
        f"The Metal kernel `saxpy` reads past the end of argument 1 {_at('y[i] += a * x[i];')}: 4 bytes at byte 400 "
        "of 400 (first in thread 100, group 0; 10 times in the launch)."
    ]
    assert (y.tolist(), beside.sum().item()) == ([2.0] * 100 + [0.0] * 100, 1000)
    line = "kernel void before(device float* y, uint i [[thread_position_in_grid]]) { y[int(i) - 1] = 1; }"
    assert said_of(faulty.before, x, threads=(2, 2)) == [
        f"The Metal kernel `before` writes before the start of argument 0 {_at(line)}: 4 bytes at byte -4 of 400 "
        "(first in thread 0, group 0; twice in the launch)."
    ]
    assert said_of(faulty.helped, _floats(), threads=1) == [
        f"The Metal kernel `helped` writes past the end of argument 0 {_at('x[i] = value;')}: 4 bytes at byte 256 of "
        "256 (first in thread 0, group 0; once in the launch)."
    ]


def test_a_view_may_be_left_within_its_storage(faulty: Any) -> None:
    """As on a Mac, where a buffer is the whole storage."""
    x = torch.zeros(100, device="mps")
    assert said_of(faulty.saxpy, x[:10], _floats(100), 1.0, threads=100) == []
    assert x.sum().item() == 100


def test_access_far_away_ends_the_kernel(faulty: Any) -> None:
    """As without the checker, with the line."""
    assert error_of(said_of, faulty.wild, _floats(), 1 << 40) == (
        f"anymps: The Metal kernel `wild` writes memory far from every buffer that it was given "
        f"{_at('x[i + by] = 1.0;')} (first in thread 0, group 0; once in the launch). On a Mac this is not "
        "caught, and the result is undefined"
    )


def test_an_element_that_an_array_lacks(faulty: Any) -> None:
    """Of a thread's own memory, too."""
    assert said_of(faulty.element, _floats(), 9, threads=1) == [
        "The Metal kernel `element` takes the element 8 of a `float[8]` "
        f"{_at('for (int j = 0; j < n; ++j) x[0] += a[j];')} (first in thread 0, group 0; once in the launch)."
    ]


def test_a_constant_that_is_too_small(faulty: Any) -> None:
    """A number is 8 bytes as an int and 4 as a float, unless `arg_casts` says otherwise."""
    assert said_of(faulty.wild, _floats(), 0.0, threads=1) == [
        "The Metal kernel `wild` takes 8 bytes as argument 1, and the call gave it 4."
    ]
    assert said_of(faulty.saxpy, _floats(), _floats(), 1.0, arg_casts={2: "fp16"}) == [
        "The Metal kernel `saxpy` takes 4 bytes as argument 2, and the call gave it 2."
    ]


def test_a_race_in_threadgroup_memory(faulty: Any) -> None:
    """Both sides, each with the line of the other."""
    after = _line_of("kernel void race")
    write, read = _at("a[i] = x[i];", after), _at("x[i] = a[63 - i];", after)
    assert sorted(said_of(faulty.race, _floats(), **GROUP)) == [
        f"The Metal kernel `race` reads threadgroup memory {read}, which thread 31 has written {write}, with no "
        "barrier in between: 4 bytes at byte 124 (first in thread 32, group 0; 32 times in the launch).",
        f"The Metal kernel `race` writes threadgroup memory {write}, which thread 31 has read {read}, with no barrier "
        "in between: 4 bytes at byte 128 (first in thread 32, group 0; 32 times in the launch).",
    ]


def test_a_race_in_a_buffer_that_is_given_twice(faulty: Any) -> None:
    """What a parameter only reads races with nobody, unless another one writes the same memory."""
    at = _at("y[i] = x[(i + 1) % 64];")
    x = _floats()
    assert said_of(faulty.shifted, _floats(), x, **GROUP) == []
    assert said_of(faulty.shifted, x, x, **GROUP) == [
        f"The Metal kernel `shifted` writes argument 0 {at}, which thread 0 has read there, too, with no barrier in "
        "between: 4 bytes at byte 4 (first in thread 1, group 0; 64 times in the launch)."
    ]


def test_a_barrier_for_other_memory_is_none(faulty: Any) -> None:
    """`mem_threadgroup` puts nothing in order that lies in a buffer; `mem_device` does."""
    after = _line_of("kernel void wrong_flag")
    read, write = _at("float other = x[63 - i];", after), _at("x[i] = 1;", after)
    assert said_of(faulty.wrong_flag, _floats(), **GROUP) == [
        f"The Metal kernel `wrong_flag` reads argument 0 {read}, which thread 63 has written {write}, with no barrier "
        "in between: 4 bytes at byte 252 (first in thread 0, group 0; 64 times in the launch)."
    ]


def test_writes_of_the_same_value_are_told_apart(faulty: Any) -> None:
    """They are no race that anybody sees."""
    assert said_of(faulty.same, _floats(), **GROUP) == [
        "Several threads of the Metal kernel `same` write the same value to argument 0 "
        f"{_at('x[0] = 1;')}, with no barrier in between: 4 bytes at byte 0, thread 0 among them (first in "
        "thread 1, group 0; 63 times in the launch)."
    ]


def test_threadgroup_memory_that_nobody_wrote(faulty: Any) -> None:
    """Each group begins with none that is written."""
    assert said_of(faulty.unwritten, _floats(128), threads=128, group_size=64) == [
        f"The Metal kernel `unwritten` reads threadgroup memory {_at('x[i] = a[i + 1];')} that no thread of the group "
        "has written: 4 bytes at byte 256 (first in thread 63, group 0; twice in the launch)."
    ]


def test_barriers_at_different_places(faulty: Any) -> None:
    """And one that threads have left before."""
    after = _line_of("kernel void places")
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    assert said_of(faulty.places, _floats(), **GROUP) == [
        f"Threads of a group of the Metal kernel `places` wait at different barriers: one {_at(barrier, after + 3)}, "
        f"and thread 0 {_at(barrier, after)} (first in thread 32, group 0; 32 times in the launch)."
    ]
    assert said_of(faulty.early, _floats(), 40, **GROUP) == [
        f"The Metal kernel `early` reaches a barrier {_at(barrier, _line_of('kernel void early'))} that 24 threads of "
        "the group do not reach: thread 40 has returned before (first in thread 0, group 0; once in the launch)."
    ]
    assert said_of(faulty.early, _floats(), 64, **GROUP) == []


def test_integer_arithmetic(faulty: Any) -> None:
    """A shift goes on with the count modulo the width; a division by zero ends the kernel."""
    x = torch.ones(4, dtype=torch.int32, device="mps")
    assert said_of(faulty.shifts, x, 40) == [
        f"The Metal kernel `shifts` shifts a value of type `int` by 40 {_at('x[i] = x[i] << n;')} (first in thread 0, "
        "group 0; 4 times in the launch)."
    ]
    assert x.tolist() == [256] * 4
    assert error_of(said_of, faulty.divides, x, 0) == (
        f"anymps: The Metal kernel `divides` divides an integer by zero {_at('x[i] = 7 / n;')} (first in thread 0, "
        "group 0; once in the launch). On a Mac this is not "
        "caught, and the result is undefined"
    )


def test_lanes_that_are_not_there(faulty: Any) -> None:
    """On another branch, returned, or beyond the end of the group; in matrices too."""
    x = torch.zeros(64, dtype=torch.int32, device="mps")
    call = _at("x[i] = simd_shuffle_xor(int(i), 1);")
    assert said_of(faulty.lanes, x, **GROUP) == [
        f"The Metal kernel `lanes` reads lane 1 by a SIMD call {call}, and that lane has returned or took another "
        "branch (first in thread 0, group 0; 22 times in the launch)."
    ]
    assert said_of(faulty.lanes, x, threads=1) == [
        f"The Metal kernel `lanes` reads lane 1 by a SIMD call {call}, and that lane does not exist: the group ends "
        "before it (first in thread 0, group 0; once in the launch)."
    ]
    assert said_of(faulty.without_lanes, _floats(), **GROUP) == [
        "The Metal kernel `without_lanes` reaches a barrier of a SIMD group "
        f"{_at('simdgroup_barrier(mem_flags::mem_device);')} without 8 lanes of it: thread 0 does not reach it "
        "(first in thread 8, group 0; once in the launch)."
    ]
    assert said_of(faulty.matrices, _floats(), threads=32) == [
        "The Metal kernel `matrices` multiplies matrices of a SIMD group "
        f"{_at('if (i < 20) simdgroup_multiply(a, a, a);')} with 12 of its 32 lanes missing (first in thread 0, group "
        "0; once in the launch)."
    ]


def test_a_finding_at_the_line_that_launched(faulty: Any, tmp_path: Path) -> None:
    """One for each line of the kernel and of the program, with how many launches; the severity fits."""
    x = _floats()
    with anymps.record(tmp_path / "run.anymps") as capture:
        for _ in range(3):
            faulty.helped(x, threads=1)
        faulty.same(x, **GROUP)
    found = [finding for finding in find(capture.recording) if finding.id.startswith("MPS85")]
    assert [(finding.id, finding.severity, finding.count, finding.site.source.strip()) for finding in found] == [
        ("MPS851", Severity.ERROR, 3, "faulty.helped(x, threads=1)"),
        ("MPS852", Severity.INFO, 1, "faulty.same(x, **GROUP)"),
    ]
    assert found[0].what == (
        f"The Metal kernel `helped` writes past the end of argument 0 {_at('x[i] = value;')}: 4 bytes at byte 256 of "
        "256 (first in thread 0, group 0; once in the launch)."
    )


def test_a_warning_where_nothing_is_recorded(faulty: Any) -> None:
    """At the same line."""
    with pytest.warns(ShaderFaultWarning, match="`without_lanes` reaches a barrier") as caught:
        faulty.without_lanes(_floats(40), threads=32)
    assert caught[0].filename == __file__


def test_another_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line."""
    monkeypatch.setenv("ANYMPS_CHECK_SHADERS", "yes")
    with pytest.raises(anymps.EnableError) as raised:
        torch.mps.compile_shader("kernel void f(device int* x) { x[0] = 7; }")
    assert str(raised.value) == "anymps: ANYMPS_CHECK_SHADERS='yes' must be all or a seed, such as 1"


def test_nothing_is_checked_without_being_asked() -> None:
    """The ordinary form knows nothing of the checker."""
    assert os.environ.get("ANYMPS_CHECK_SHADERS", "0") == "0"
    y = torch.zeros(4, device="mps")
    assert said_of(torch.mps.compile_shader(BASICS).saxpy, y, y, 2.0) == []
