"""The checker of rows that all threads of a group read whole (Welford's method): what is found, and the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metal_shaders import HEAD
from shader_faults import compile_checked, said_of

pytestmark = pytest.mark.usefixtures("virtual_device", "no_faults_left")

SOURCE = (
    HEAD
    + """
#include <c10/metal/reduction_utils.h>
kernel void parts(device float* out, constant float* in, constant uint& size, uint i [[thread_index_in_threadgroup]],
                  uint g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]]) {
  threadgroup float3 row[300];
  row[i] = float3(in[g * n + i], in[n - 1 - i], i % 3);
  float3 found = c10::metal::threadgroup_welford_combine(row, size);
  row[i] = found.zxy + i;
  found += c10::metal::threadgroup_welford_combine(row, size);
  out[g * n + i] = found.x + found.y * found.z + i;
}
kernel void unwritten(device float* out, constant uint& size, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float3 row[256];
  if (i != 7) row[i] = i;
  out[i] = c10::metal::threadgroup_welford_combine(row, size).x;
}
kernel void written(device float* out, constant uint& from, constant uint& to, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float3 row[256];
  row[i] = i;
  if (i < from || i >= to) {
    out[i] = c10::metal::threadgroup_welford_combine(row, 256).x;
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    row[3].y = i;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
"""
)
LINES = SOURCE.splitlines()


@pytest.fixture(scope="module")
def checked() -> Any:
    """The kernels above in their checked form."""
    return compile_checked(SOURCE)


CALL = "out[i] = c10::metal::threadgroup_welford_combine(row, 256).x;"
WAIT = "threadgroup_barrier(mem_flags::mem_threadgroup);"
WRITE = "row[3].y = i;"


def _at(line: str, place: int = 0) -> str:
    """`at line 5, `x[i] = 1;``: the line of the source that is the `place`-th of this text."""
    numbers = [number for number, text in enumerate(LINES, 1) if text.strip() == line]
    return f"at line {numbers[place]}, `{line}`"


def _apart(one: str, other: str, first: int, times: str) -> str:
    return (
        f"Threads of a group of the Metal kernel `written` wait at different barriers: one {one}, and thread 0 {other} "
        f"(first in thread {first}, group 0; {times} in the launch)."
    )


def _race(verb: str, line: str, other: str, at: str, first: int, times: str) -> str:
    return (
        f"The Metal kernel `written` {verb} threadgroup memory {_at(line)}, which thread {other} {_at(at)}, with no "
        f"barrier in between: 4 bytes at byte 52 (first in thread {first}, group 0; {times} in the launch)."
    )


@pytest.mark.parametrize("size", [1, 40, 300])
def test_a_row_that_is_clean_gives_the_bits_of_the_plain_form(checked: Any, size: int) -> None:
    """Two rows a group, of which the second lies where the first one did."""
    plain = torch.mps.compile_shader(SOURCE)
    x = torch.randn(600).to("mps")
    results = []
    for library in (plain, checked):
        out = torch.zeros(600, device="mps")
        assert not said_of(library.parts, out, x, size, threads=600, group_size=300)
        results.append(out.cpu())
    assert results[0].view(torch.int32).equal(results[1].view(torch.int32))


def test_an_element_that_nobody_wrote_and_one_that_is_not_there(checked: Any) -> None:
    """Each of its numbers is told once, and each read past the end is counted."""
    call = "at line 17, `out[i] = c10::metal::threadgroup_welford_combine(row, size).x;`"
    assert said_of(checked.unwritten, torch.zeros(256, device="mps"), 257, threads=256, group_size=256) == [
        f"The Metal kernel `unwritten` reads threadgroup memory {call} that no thread of the group has written: 4 "
        "bytes at byte 112 (first in thread 0, group 0; 3 times in the launch).",
        f"The Metal kernel `unwritten` reads past the end of threadgroup memory {call}: 4 bytes at byte 4,096 of 4,096 "
        "(first in thread 0, group 0; 768 times in the launch).",
    ]


def test_a_thread_that_writes_to_the_row_races_with_all_that_read_it(checked: Any) -> None:
    """Whether it comes after all others, between them or before them, and whichever SIMD group it belongs to."""

    def found(start: int, end: int) -> list[str]:
        return said_of(checked.written, torch.zeros(256, device="mps"), start, end, threads=256, group_size=256)

    for writer, later in ((200, 55), (40, 215), (1, 254)):
        assert found(writer, writer + 1) == [
            _apart(_at(WAIT), _at(CALL), writer, "once"),
            _race("writes", WRITE, "0 has read", CALL, writer, "once"),
            _race("reads", CALL, f"{writer} has written", WRITE, writer + 1, f"{later} times"),
            _apart(_at(WAIT, 1), _at(CALL), writer, "once"),
        ]
    assert found(255, 256) == [
        _apart(_at(WAIT), _at(CALL), 255, "once"),
        _race("writes", WRITE, "0 has read", CALL, 255, "once"),
        _apart(_at(WAIT, 1), _at(CALL), 255, "once"),
    ]
    assert found(0, 1) == [
        _apart(_at(CALL), _at(WAIT), 1, "510 times"),
        _race("reads", CALL, "0 has written", WRITE, 1, "255 times"),
    ]
