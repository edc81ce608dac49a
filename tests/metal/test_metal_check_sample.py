"""Of a large launch the checker follows a sample of groups, and not at each launch; the rest runs in the plain form."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from anymps.metal._arguments import Arguments, Constant
from anymps.metal.checking import CheckedLaunch, Samples
from metal.forms import error_of
from metal_shaders import HEAD
from shader_faults import compile_checked, said_of

pytestmark = pytest.mark.usefixtures("virtual_device", "no_faults_left")

SOURCE = (
    HEAD
    + """
kernel void softmax1(device float* out, device float* in, constant int& n, constant int& c,
                     uint i [[thread_position_in_grid]]) {
  if (int(i) >= n) return;
  device float* row = in + i * c;
  float sum = 0;
  for (int j = 0; j < c; ++j) sum += out[i * c + j] = exp(row[j]);
  for (int j = 0; j < c; ++j) out[i * c + j] /= sum;
}
kernel void reads_at(device float* o, constant float* a, constant float4& at, uint3 p [[thread_position_in_grid]]) {
  if (p.x == at.x && p.y == at.y && p.z == at.z) o[0] = a[uint(at.w)];
}
kernel void up_to(device float* o, constant float* a, constant int& n, uint i [[thread_position_in_grid]]) {
  if (int(i) <= n) o[i] = 2 * a[i];
}
kernel void down_to(device float* o, constant float* a, constant int& n, uint2 p [[thread_position_in_grid]]) {
  if (int(p.y) <= n) o[p.y * 64 + p.x] = 2 * a[p.y * 64 + p.x];
}
kernel void tail(device float* o, constant float* a, uint i [[thread_position_in_grid]]) { o[i] = a[i] + 1; }
kernel void strays(device float* o, constant int& group, uint i [[thread_position_in_grid]],
                   uint g [[threadgroup_position_in_grid]]) {
  o[int(g) == group ? 64000 : i] = -1.1f;
}
kernel void meets(device float* o, uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]]) {
  threadgroup float t[32];
  t[l] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  o[i] = t[31 - l] + simd_sum(1.0f);
}
kernel void diverges(device float* o, uint i [[thread_position_in_grid]]) {
  float s = 0;
  for (uint k = 0; k < i % 3 + 1; ++k) s += simd_sum(1.0f);
  o[i] = s + i;
}
kernel void in_line(device atomic_int* turn, device int* o, uint g [[threadgroup_position_in_grid]],
                    uint l [[thread_index_in_threadgroup]]) {
  if (l != 0) return;
  while (atomic_load_explicit(turn, memory_order_relaxed) < int(g)) {}
  o[g] = 2 * g;
  atomic_store_explicit(turn, int(g) + 1, memory_order_relaxed);
}
kernel void last_one(device atomic_int* done, device float* o, uint groups [[threadgroups_per_grid]],
                     uint l [[thread_index_in_threadgroup]]) {
  if (l == 0 && atomic_fetch_add_explicit(done, 1, memory_order_relaxed) == int(groups) - 1) o[1] = o[400];
}
"""
)


@pytest.fixture(name="checked")
def fixture_checked() -> Any:
    """The kernels above in their checked form, with no launch counted."""
    return compile_checked(SOURCE)


@pytest.fixture(name="looks")
def fixture_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups were checked of each launch that was."""
    seen: list[int] = []
    run = CheckedLaunch.run

    def noting(check: CheckedLaunch, *given: Any) -> None:
        seen.append(len(check.sample.groups))
        run(check, *given)

    monkeypatch.setattr(CheckedLaunch, "run", noting)
    return seen


def _zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*sizes, dtype=dtype, device="mps")


def test_every_launch_up_to_the_eighth_is_checked_then_each_64th(checked: Any, looks: list[int]) -> None:
    """Also of a kernel whose addresses depend on what it is given; the results are the same in each."""
    x, cast = torch.randn(64, 8), {2: "int32", 3: "int32"}
    given, expected = x.to("mps"), x.softmax(1)
    for launch in range(1, 201):
        out = _zeros(64, 8)
        assert said_of(checked.softmax1, out, given, 64, 8, threads=64, group_size=8, arg_casts=cast) == []
        assert len(looks) == min(launch, 8) + launch // 64
        assert torch.allclose(out.cpu(), expected, atol=1e-6)


def test_launches_of_another_size_or_type_are_counted_apart(checked: Any, looks: list[int]) -> None:
    """What is wrong with one of them is not hidden by those before."""
    whole = torch.ones(64, device="mps")
    for _ in range(9):
        assert said_of(checked.tail, whole, whole) == []
    assert len(looks) == 8
    (what,) = said_of(checked.tail, whole, whole[:40].clone())
    assert "`tail` reads past the end of argument 1" in what
    (what,) = said_of(checked.tail, whole, whole.to(torch.int32))
    assert what.endswith("but the call passed a tensor of int32: its bytes are misread.")


SIZES = [((3200,), (32,)), ((640, 480), (8, 8)), ((64, 48, 40), (4, 4, 4)), ((3190,), (32,)), ((637, 475), (8, 8))]


@pytest.mark.parametrize(("grid", "group"), SIZES)
@pytest.mark.parametrize("where", ["first", "last", "corner"])
def test_a_fault_of_the_first_thread_or_the_last_group_is_found(
    checked: Any, looks: list[int], grid: tuple[int, ...], group: tuple[int, ...], where: str
) -> None:
    """And one in a corner: the first along x, the last along all others."""
    last = [size - 1 for size in grid]
    at = {"first": [0] * len(grid), "last": last, "corner": [0, *last[1:]]}[where]
    place = torch.tensor([*at, *[0] * (3 - len(at)), 100.0], device="mps")
    (what,) = said_of(checked.reads_at, _zeros(1), _zeros(100), place, threads=grid, group_size=group)
    assert "4 bytes at byte 400 of 400" in what
    total = torch.tensor([-(-size // one) for size, one in zip(grid, group, strict=True)]).prod().item()
    assert looks[0] < total
    assert f"once in {looks[0]:,} of {total:,} groups, seed 1)." in what


def test_a_fault_at_the_border_of_a_tail_is_found(checked: Any) -> None:
    """Where the grid has more threads than elements: one thread too many, in the middle of the grid."""
    cast = {"arg_casts": {2: "int32"}}
    for n in (992, 1000, 1023, 1024):
        o, a = _zeros(65536), torch.ones(n, device="mps")
        (what,) = said_of(checked.up_to, o, a, n, threads=65536, group_size=32, **cast)
        assert f"4 bytes at byte {4 * n:,} of {4 * n:,} (first in thread {n}, group {n // 32}; " in what
        assert o.sum().item() == 2 * n
    o, a = _zeros(64 * 4096), torch.ones(64 * 100, device="mps")
    (what,) = said_of(checked.down_to, o, a, 100, threads=(64, 4096), group_size=(64, 1), **cast)
    assert "(first in thread (0, 100), group (0, 100); 64 times in 3" in what


def test_the_last_group_that_is_cut_is_found(checked: Any) -> None:
    """A grid that is a multiple of the group, over a buffer that is none."""
    (what,) = said_of(checked.tail, _zeros(3200), _zeros(3199), threads=3200, group_size=32)
    assert "(first in thread 3199, group 99; once in 3" in what


def test_all_groups_are_checked_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, looks: list[int]) -> None:
    """At every launch: a fault of one thread in the middle, which the sample of the seed 1 does not have."""
    place = torch.tensor([48000.0, 0.0, 0.0, 100.0], device="mps")
    given = (_zeros(1), _zeros(100), place)
    for value, expected in (("1", []), ("all", ["once in the launch)."])):
        monkeypatch.setenv("ANYMPS_CHECK_SHADERS", value)
        kernel = torch.mps.compile_shader(SOURCE).reads_at
        looks.clear()
        for _ in range(1 if value == "1" else 10):
            said = said_of(kernel, *given, threads=96000, group_size=32)
            assert [what.rpartition("; ")[2] for what in said] == expected
    assert looks == [3000] * 10


def _samples(seed: int, launches: int, grid: tuple[int, int, int], numbers: bytes = b"") -> list[list[int]]:
    """The groups of the first launches over a grid, in groups of 4 by 2 by 1 threads."""
    samples, found = Samples(seed), []
    for _ in range(launches):
        sample = samples.next("k", Arguments([Constant(numbers + bytes(64), "i")]), grid, (4, 2, 1))
        assert sample is not None
        covered = [range(first, first + count) for first, count, _ in sample.parts()]
        assert list(itertools.chain(*covered)) == list(range(sample.total))
        assert [first for first, count, checked in sample.parts() if checked for _ in range(count)] == sample.groups
        found.append(list(sample.groups))
    return found


def test_what_a_sample_has() -> None:
    """The ends along each axis and 32 groups more, others at each launch and with each seed."""
    grid = (400, 99, 50)  # 100 by 50 by 50 groups
    ends = {x + 100 * (y + 50 * z) for x in (0, 1, 98, 99) for y in (0, 1, 48, 49) for z in (0, 1, 48, 49)}
    found = _samples(1, 3, grid)
    assert all(set(groups) > ends and len(groups) == len(ends) + 32 for groups in found)
    assert found == _samples(1, 3, grid)
    others = [set(groups) - ends for groups in (*found, *_samples(2, 3, grid))]
    assert len({frozenset(groups) for groups in others}) == 6
    with_border = _samples(1, 1, grid, (41).to_bytes(4, "little"))[0]
    assert {10, 20 * 100, 40 * 100 * 50, 41 * 100 * 50} <= set(with_border)


@pytest.mark.parametrize("name", ["tail", "meets", "diverges"])
def test_groups_outside_of_the_sample_compute_the_same(checked: Any, looks: list[int], name: str) -> None:
    """As boxes of the grid, as loops and as fibers; the last group is cut."""
    results = []
    given = [torch.arange(8000.0, device="mps")] if name == "tail" else []
    for kernel in (getattr(torch.mps.compile_shader(SOURCE), name), getattr(checked, name)):
        o = _zeros(8000)
        assert said_of(kernel, o, *given, threads=8000 if name != "tail" else 7990, group_size=32) == []
        results.append(o.cpu())
    assert looks[0] < 250
    assert results[0].equal(results[1])
    assert results[0][:7990].count_nonzero() >= 7989


def test_groups_run_in_their_order(checked: Any, looks: list[int]) -> None:
    """One that waits for the group before it, and the last to come, find what the others have left."""
    turn, o = _zeros(1, dtype=torch.int32), _zeros(200, dtype=torch.int32)
    assert said_of(checked.in_line, turn, o, threads=6400, group_size=32) == []
    assert o.tolist() == list(range(0, 400, 2))
    (what,) = said_of(checked.last_one, _zeros(1, dtype=torch.int32), _zeros(100), threads=6400, group_size=32)
    assert "byte 1,600 of 400" in what
    assert max(looks) < 40


def test_a_write_beside_a_buffer_by_a_group_that_is_not_checked(checked: Any) -> None:
    """It is told as without the checker, in a launch with a sample as in one that is not checked."""
    o, sizes = _zeros(64000), {"threads": 64000, "group_size": 32, "arg_casts": {1: "int32"}}
    for _ in range(10):
        assert error_of(said_of, checked.strays, o, 1000, **sizes) == (
            "anymps: the Metal kernel 'strays' wrote 4 bytes past the end of argument 0, starting at byte 256,000 of "
            "256,000. On a Mac this is not caught and overwrites other data; ANYMPS_CHECK_SHADERS=all names the line "
            "of the kernel"
        )
    (what,) = said_of(compile_checked(SOURCE).strays, o, 1999, **sizes)
    assert "`strays` writes past the end of argument 0" in what
