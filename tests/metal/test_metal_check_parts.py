"""Large checked launches are looked at in few of their groups, and what is found is what a look at all of them finds.

`ANYMPS_FUZZ_EXAMPLES` runs a quarter so many random kernels, of the seed `ANYMPS_FUZZ_SEED`, in place of a fixed few.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import random_places
from anymps.metal import take_shader_faults
from anymps.metal.analysis import GridPlaces, Program, SimilarGroups
from anymps.metal.checking import CheckedLaunch, CleanLaunches
from metal_shaders import HEAD
from shader_faults import compile_checked, said_of

pytestmark = pytest.mark.usefixtures("virtual_device", "no_faults_left")

KERNELS = 20  # in one source
EXAMPLES = int(os.environ.get("ANYMPS_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("ANYMPS_FUZZ_SEED", "0"))

SOURCE = (
    HEAD
    + """
kernel void add(device float* o, constant float* a, constant float* b, uint i [[thread_position_in_grid]]) {
  o[i] = a[i] + b[i];
}
kernel void up_to(device float* o, constant float* a, constant int& n, uint i [[thread_position_in_grid]]) {
  if (int(i) < n) o[i] = 2 * a[i];
}
kernel void gather(device float* o, constant float* a, constant int* at, uint i [[thread_position_in_grid]]) {
  o[i] = a[at[i]];
}
kernel void before(device float* o, uint i [[thread_position_in_grid]]) { o[i] = i > 40 ? o[i - 1] : 1; }
kernel void far(device float* o, constant float* a, uint i [[thread_position_in_grid]]) {
  o[i] = a[i == 37 ? 1000 : i];
}
kernel void meets(device float* o, uint i [[thread_position_in_grid]], uint g [[threadgroup_position_in_grid]]) {
  o[g == 5 ? 40 : i] = 1;
}
kernel void from_both_ends(device float* o, uint i [[thread_position_in_grid]]) {
  o[60 + i] = 1;
  o[119 - i] = 2;
}
"""
)


@pytest.fixture(name="checked")
def fixture_checked() -> Any:
    """The kernels above in their checked form."""
    return compile_checked(SOURCE)


@pytest.fixture(name="looks")
def fixture_looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The groups of each look, and `all` where all of them were looked at."""
    seen: list[object] = []
    run, look = CheckedLaunch.run, CheckedLaunch.look

    def running(check: CheckedLaunch, *arguments: Any) -> str:
        seen.append("all")
        return run(check, *arguments)

    def looking(check: CheckedLaunch, launch: Any, chosen: Sequence[int], copied: Any) -> Any:
        seen.append(list(chosen))
        return look(check, launch, chosen, copied)

    monkeypatch.setattr(CheckedLaunch, "run", running)
    monkeypatch.setattr(CheckedLaunch, "look", looking)
    return seen


def _ones(count: int) -> torch.Tensor:
    return torch.ones(count, device="mps")


def test_one_group_stands_for_all(checked: Any, looks: list[object]) -> None:
    """Each of the others is so many bytes further on; the launch itself runs in the plain form."""
    o, a = torch.zeros(64, device="mps"), torch.arange(64.0).to("mps")
    assert said_of(checked.add, o, a, _ones(64), group_size=8) == []
    assert (looks, o.tolist()) == ([[0]], [float(i + 1) for i in range(64)])


def test_the_edge_of_the_grid_is_looked_at(checked: Any, looks: list[object]) -> None:
    """Its last group is smaller."""
    assert said_of(checked.add, _ones(61), _ones(61), _ones(61), group_size=8) == []
    assert looks == [[0], [7]]


def test_groups_in_which_a_condition_changes_are_looked_at(checked: Any, looks: list[object]) -> None:
    """Before them it holds for all threads, behind them for none."""
    cast = {"arg_casts": {2: "int32"}}
    o = torch.zeros(64, device="mps")
    assert said_of(checked.up_to, o, _ones(36), 36, group_size=8, **cast) == []
    assert sorted(map(str, looks)) == ["[0]", "[4]", "[5]"]
    assert o.tolist() == [2.0] * 36 + [0.0] * 28


def test_what_leaves_a_buffer_on_the_way_is_found(checked: Any, looks: list[object]) -> None:
    """The group that was looked at is clean, the last one is not: all of them are looked at."""
    line = next(i for i, text in enumerate(SOURCE.splitlines(), 1) if "a[i] + b[i]" in text)
    assert said_of(checked.add, _ones(64), _ones(63), _ones(64), group_size=8) == [
        f"The Metal kernel `add` reads past the end of argument 1 at line {line}, `o[i] = a[i] + b[i];`: 4 bytes at "
        "byte 252 of 252 (first in thread 63, group 7; once in the launch)."
    ]
    assert looks == [[0], "all"]


def test_a_fault_of_one_group_in_the_middle_is_found(checked: Any) -> None:
    """Of one thread of it, and of a race within it."""
    (what,) = said_of(checked.far, _ones(64), _ones(64), group_size=8)
    assert "4 bytes at byte 4,000 of 256 (first in thread 37, group 4; once in the launch)" in what
    (what,) = said_of(checked.meets, _ones(64), group_size=8)
    assert "group 5" in what


def test_accesses_that_move_apart_meet_in_one_group(checked: Any, looks: list[object]) -> None:
    """Those of the first group and of the last one are far from each other; in the fourth one they are not."""
    found = said_of(checked.from_both_ends, _ones(200), threads=56, group_size=8)
    assert found
    assert all("group 3" in what for what in found)
    assert looks[-1] == "all"


def test_a_race_within_each_group_is_found(checked: Any) -> None:
    """Where the accesses of a written buffer move alike, but threads meet."""
    found = said_of(checked.before, _ones(96), group_size=8)
    assert len(found) == 1
    assert "`before`" in found[0]


def test_contents_that_decide_are_looked_at(checked: Any, looks: list[object]) -> None:
    """An index that is read differs from group to group in no way that is known."""
    at = torch.arange(64, dtype=torch.int32, device="mps")
    assert said_of(checked.gather, _ones(64), _ones(64), at, group_size=8) == []
    assert looks == ["all"]


def _parts(body: str, head: str = "", grid: int = 64, n: int = 4) -> list[tuple[int, int]] | None:
    """The parts of a launch of eight threads a group, along x; None where nothing is shown."""
    text = f"""{head}
    kernel void k(device float* o, device const float* x, constant int& n, device const int* d,
                  uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]],
                  uint g [[threadgroup_position_in_grid]]) {{
      threadgroup float t[8];
      int k = 0;
      {body}
    }}"""
    places = GridPlaces((grid, 1, 1), (8, 1, 1), {2: n.to_bytes(8, "little")}, frozenset({2}), frozenset({0, 1, 2, 3}))
    found = SimilarGroups(Program(text)).parts("k", places, 16)
    return None if found is None else sorted((part.first[0], part.last[0]) for part in found)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("o[i] = x[i];", [(0, 7)]),
        ("o[i] = x[i * n];", [(0, 7)]),
        ("o[i] = x[i / 8];", [(0, 7)]),
        ("o[i] = x[i % 4];", [(0, 7)]),
        ("o[i] = x[i / 16];", None),
        ("o[i] = x[i % 3];", None),
        ("o[i] = x[i * i];", None),
        ("o[i] = x[i ^ 1];", None),
        ("o[i] = x[ushort(i)];", [(0, 7)]),
        ("o[i] = x[uchar(i + 200)];", None),
        ("o[i] = x[d[i]];", None),
        ("if (d[i] > 0) o[i] = 1;", None),
        ("if (d[i] > 0) k = 1; o[i] = k;", [(0, 7)]),
        ("if (d[i] > 0) k = 1; o[k] = 1;", None),
        ("if (d[i] > 0) return; o[i] = 1;", None),
        ("if (int(i) < n) o[i] = 1;", [(0, 0), (1, 7)]),
        ("if (int(i) < n * 5) o[i] = 1;", [(0, 1), (2, 2), (3, 7)]),
        ("if (g == 3) o[i] = 1;", [(0, 2), (3, 3), (4, 7)]),
        ("if (i >= 16) return; o[i] = 1;", [(0, 1), (2, 7)]),
        ("o[i - 1] = 1;", [(0, 7)]),
        ("auto p = o + (i - 1); *p = 1;", None),
        ("auto p = o + (int(i) - 1); *p = 1;", [(0, 7)]),
        ("device float* p = o + i; p[l] = 1;", [(0, 7)]),
        ("device float* p = o; if (l > 0) p = o + i; p[l] = 1;", None),
        ("for (uint j = i; j < i + 3; ++j) o[j] = 1;", [(0, 7)]),
        ("for (int j = 0; j < n; ++j) k += 2; o[k] = 1;", [(0, 7)]),
        ("for (int j = 0; j < n; ++j) k += i; o[k] = 1;", None),
        ("for (int j = 0; j < int(i); ++j) o[j] = 1;", None),
        ("while (d[k] > 0) ++k; o[i] = 1;", None),
        ("k = i; k = l; o[k] = 1;", [(0, 7)]),
        ("if (l > 2) k = i; o[k] = 1;", None),
        ("t[l] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); o[i] = t[7 - l];", [(0, 7)]),
        ("t[i] = 1;", None),
        ("t[i % 8] = 1;", [(0, 7)]),
        ("o[i] = 1 << k;", [(0, 7)]),
        ("o[i] = 1 << i;", None),
        ("o[i] = 7 / int(i);", None),
        ("o[i] = simd_shuffle(x[i], l);", [(0, 7)]),
        ("o[i] = simd_shuffle(x[i], g);", None),
        ("o[i] = d[i] > 0 ? 1 : 2;", [(0, 7)]),
        ("o[i] = d[i] > 0 ? x[i] : 2;", None),
        ("short s; s = i * 8; o[s] = 1;", [(0, 7)]),
        ("char s; s = i * 8; o[s] = 1;", None),
        ("switch (n) { default: o[i] = 1; }", None),
    ],
)
def test_which_groups_do_the_same(body: str, parts: list[tuple[int, int]] | None) -> None:
    """From the first to the last of each part; None where they may differ in another way than by a step."""
    assert _parts(body) == parts


@pytest.mark.parametrize(
    ("head", "body", "parts"),
    [
        ("int next(int v) { return v + 1; }", "o[next(i)] = 1;", [(0, 7)]),
        ("int some(int v) { if (v > 20) return 1; return v; }", "o[some(i)] = 1;", [(0, 1), (2, 2), (3, 7)]),
        ("int some(int v) { if (v >= 16) return 1; return v; }", "o[some(i)] = 1;", [(0, 1), (2, 7)]),
        ("void put(device float* p, uint i) { p[i] = 1; }", "put(o + int(l), i);", [(0, 7)]),
        ("constant int N = 2;", "o[i * N] = 1;", [(0, 7)]),
        ("constant int N = 2; constant int M = N;", "o[i * M] = 1;", None),
        ("constant int T[8] = {1};", "o[i] = T[l];", [(0, 7)]),
        ("constant int T[8] = {1};", "o[i] = T[g];", None),
    ],
)
def test_which_groups_do_the_same_through_functions(head: str, body: str, parts: list[tuple[int, int]] | None) -> None:
    """Values are followed through the program's own functions and constants."""
    assert _parts(body, head) == parts


def _launched(kernel: Any, shape: Any) -> tuple[list[str], str, bytes]:
    """What is found in a launch of a kernel of `random_places`, its error, and what it wrote."""
    grid, group, number, size = shape
    x = torch.rand(size, generator=torch.Generator().manual_seed(1)).to("mps")
    o, counts = torch.zeros(size, device="mps"), torch.zeros(size, dtype=torch.int32, device="mps")
    error, said = "", []
    take_shader_faults()
    try:
        said = said_of(kernel, o, x, number, counts, threads=grid, group_size=group, arg_casts={2: "int32"})
    except RuntimeError as raised:
        error = str(raised)
        said = [fault.what for fault in take_shader_faults()]
    return said, error, b"" if said or error else o.cpu().numpy().tobytes() + counts.cpu().numpy().tobytes()


@pytest.mark.parametrize("one", range(max(1, EXAMPLES // KERNELS // 4) if EXAMPLES else 2))
def test_random_places_are_looked_at_in_parts(one: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch by launch the findings, the errors and the results are those of a look at all groups."""
    numbers = random.Random(SEED * 10_007 + one)
    text = random_places.source(numbers.randint, KERNELS)
    monkeypatch.setenv("ANYMPS_CHECK_SHADERS", "1")
    library = torch.mps.compile_shader(text)
    shown: list[bool] = []
    by_parts = CleanLaunches.by_parts

    def noting(launches: CleanLaunches, *given: Any) -> bool:
        shown.append(by_parts(launches, *given))
        return shown[-1]

    monkeypatch.setattr(CleanLaunches, "has", lambda *_: False)
    for number in range(KERNELS):
        for _ in range(4):
            shape = random_places.shapes(numbers.randint)
            monkeypatch.setattr(CleanLaunches, "by_parts", noting)
            found = _launched(getattr(library, f"k{number}"), shape)
            monkeypatch.setattr(CleanLaunches, "by_parts", lambda *_: False)
            start = text.index(f"kernel void k{number}(")
            assert found == _launched(getattr(library, f"k{number}"), shape), text[start:]
    assert sum(shown) > KERNELS // 2  # of four launches each
