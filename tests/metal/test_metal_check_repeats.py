"""Checked launches that repeat a clean one run in the plain form; whatever may make a difference is looked at again.

`ANYMPS_FUZZ_EXAMPLES` runs a quarter so many random kernels, of the seed `ANYMPS_FUZZ_SEED`, in place of a fixed few.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import random_faults
from anymps.metal import take_shader_faults
from anymps.metal.analysis import Program, deciding_buffers
from anymps.metal.checking import CheckedLaunch, CleanLaunches, _repeats
from metal_shaders import HEAD
from shader_faults import compile_checked, said_of

pytestmark = pytest.mark.usefixtures("virtual_device", "no_faults_left")

KERNELS = 20  # in one source
EXAMPLES = int(os.environ.get("ANYMPS_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("ANYMPS_FUZZ_SEED", "0"))
GROUP = {"threads": 64, "group_size": 64}

SOURCE = (
    HEAD
    + """
kernel void scale(device float* y, constant float* x, constant int& n, uint i [[thread_position_in_grid]]) {
  if (int(i) < n) y[i] = 2 * x[i];
}
kernel void axpy(device float* y, constant float* x, constant float& a, uint i [[thread_position_in_grid]]) {
  y[i] += a * x[i];
}
kernel void gather(device float* y, constant float* x, constant int* at, uint i [[thread_position_in_grid]]) {
  y[i] = x[at[i]];
}
kernel void follow(device int* y, constant int* at, uint i [[thread_position_in_grid]]) {
  y[i] = at[at[i]];
}
kernel void chase(device int* y, uint i [[thread_position_in_grid]]) {
  y[i] = y[y[i]];
}
kernel void last_of(device float* y, constant float* x, uint i [[thread_position_in_grid]]) {
  y[0] = x[i];
}
kernel void turn(device float* y, device const float* x, uint i [[thread_index_in_threadgroup]]) {
  y[i] = x[63 - i];
}
"""
)


@pytest.fixture(name="checked")
def fixture_checked() -> Any:
    """The kernels above in their checked form, with no launch that they remember."""
    return compile_checked(SOURCE)


@pytest.fixture(name="looks")
def fixture_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels of the launches that ran under the checker."""
    seen: list[str] = []
    run = CheckedLaunch.run

    def noting(check: CheckedLaunch, launch: Any, report: Any) -> str:
        seen.append(launch.kernel)
        return run(check, launch, report)

    monkeypatch.setattr(CheckedLaunch, "run", noting)
    return seen


def _ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="mps")


def test_a_repeated_launch_runs_in_the_plain_form(checked: Any, looks: list[str]) -> None:
    """With other numbers in other buffers of the same size."""
    for turn in range(3):
        x, y = torch.full((64,), float(turn), device="mps"), torch.zeros(64, device="mps")
        assert said_of(checked.scale, y, x, 64, threads=64, arg_casts={2: "int32"}) == []
        assert y.tolist() == [2.0 * turn] * 64
    assert looks == ["scale"]


def test_races_of_same_values_are_looked_at_at_distances_that_double(
    checked: Any, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks what was found is told again; a race of different values is found at the next look."""
    monkeypatch.setattr(_repeats, "_MOST_APART", 8)
    same, other, y = torch.ones(64, device="mps"), torch.arange(64.0).to("mps"), torch.zeros(1, device="mps")
    looked = []
    for launch in range(1, 34):
        before = len(looks)
        (what,) = said_of(checked.last_of, y, same, **GROUP)
        assert "write the same value to argument 0" in what
        assert y.tolist() == [1.0]
        looked += [launch] * (len(looks) - before)
    assert looked == [1, 2, 4, 8, 16, 24, 32]
    said = [said_of(checked.last_of, y, other, **GROUP) for _ in range(9)]
    assert [("has written there, too" in what) for (what,) in said] == [False] * 6 + [True] * 3
    assert len(looks) == 10
    (what,) = said_of(checked.last_of, y, same, **GROUP)  # known again, from the beginning
    assert "write the same value to argument 0" in what
    assert len(looks) == 11


def test_other_sizes_places_and_constants_are_looked_at(checked: Any, looks: list[str]) -> None:
    """Each of them may bring a thread beside a buffer."""
    x, y = torch.ones(64, device="mps"), torch.zeros(64, device="mps")
    cast = {"arg_casts": {2: "int32"}}
    for n, threads, target in (
        (64, 64, y),
        (65, 65, y),
        (64, 65, y),
        (64, 64, y[1:]),
        (64, 64, torch.zeros(60, device="mps")),
    ):
        for _ in range(2):
            found = said_of(checked.scale, target, x, n, threads=threads, **cast)
            faulty = n > 64 or target.data_ptr() != y.data_ptr()
            assert [" of argument 0 " in what or " of argument 1 " in what for what in found] == [True] * len(found)
            assert bool(found) == faulty
    assert len(looks) == 1 + 2 + 1 + 2 + 2


def test_numbers_that_decide_nothing_may_differ(checked: Any, looks: list[str]) -> None:
    """A learning rate is another one in each step."""
    x, y = torch.ones(4, device="mps"), torch.zeros(4, device="mps")
    for a in (0.5, 0.25, 0.125):
        assert said_of(checked.axpy, y, x, a) == []
    assert (y.tolist(), looks) == ([0.875] * 4, ["axpy"])
    assert said_of(checked.axpy, y, x, 1) == [
        "The Metal kernel `axpy` takes argument 2 as `float&`, but the call passed a number of type `long`: the bytes "
        "are misread."
    ]


def test_indices_that_change_are_looked_at(checked: Any, looks: list[str]) -> None:
    """The same ones are not: their contents are compared."""
    x, y = torch.ones(8, device="mps"), torch.zeros(4, device="mps")
    assert said_of(checked.gather, y, x, _ints(0, 3, 7, 7)) == []
    assert said_of(checked.gather, y, 2 * x, _ints(0, 3, 7, 7)) == []
    assert len(looks) == 1
    line = next(i for i, text in enumerate(SOURCE.splitlines(), 1) if "x[at[i]]" in text)
    assert said_of(checked.gather, y, x, _ints(0, 3, 8, 7)) == [
        f"The Metal kernel `gather` reads past the end of argument 1 at line {line}, `y[i] = x[at[i]];`: 4 bytes at "
        "byte 32 of 32 (first in thread 2, group 0; once in the launch)."
    ]
    assert y.tolist() == [1, 1, 0, 1]


def test_memory_that_changes_within_a_launch_decides_nothing_known(checked: Any, looks: list[str]) -> None:
    """Such a kernel is always looked at."""
    for _ in range(2):
        assert said_of(checked.chase, _ints(0), threads=1) == []
    assert looks == ["chase"] * 2


def test_indices_that_a_launch_writes_are_looked_at(checked: Any, looks: list[str]) -> None:
    """They are read-only by their type, and lie in a buffer that is written as well."""
    both = _ints(0, 0)
    for _ in range(2):
        assert said_of(checked.follow, both[:1], both[1:], threads=1) == []
    assert looks == ["follow"] * 2


def test_where_a_view_begins_makes_a_difference(checked: Any, looks: list[str]) -> None:
    """Two views of one shape and one storage: one thread more than elements is beside the storage in one of them."""
    x, storage = torch.ones(65, device="mps"), torch.zeros(66, device="mps")
    line = next(i for i, text in enumerate(SOURCE.splitlines(), 1) if "2 * x[i]" in text)
    cast = {"arg_casts": {2: "int32"}}
    assert said_of(checked.scale, storage[:64], x, 65, threads=65, **cast) == []
    assert said_of(checked.scale, storage[2:], x, 65, threads=65, **cast) == [
        f"The Metal kernel `scale` writes past the end of argument 0 at line {line}, `if (int(i) < n) y[i] = 2 * x[i];`"
        ": 4 bytes at byte 264 of 264 (first in thread 64, group 0; once in the launch)."
    ]


def test_buffers_that_share_memory_are_looked_at(checked: Any, looks: list[str]) -> None:
    """The same tensors apart are clean, and race where they are one."""
    x, y = torch.ones(64, device="mps"), torch.zeros(64, device="mps")
    for _ in range(2):
        assert said_of(checked.turn, y, x, **GROUP) == []
    assert looks == ["turn"]
    line = next(i for i, text in enumerate(SOURCE.splitlines(), 1) if "x[63 - i]" in text)
    for _ in range(2):
        assert any(
            what.startswith(f"The Metal kernel `turn` reads argument 0 at line {line}, ")
            for what in said_of(checked.turn, x, x, **GROUP)
        )
    assert looks == ["turn"] * 3


def test_arguments_are_always_judged(checked: Any) -> None:
    """A launch with a finding about an argument is never a clean one."""
    x, y = torch.ones(64, device="mps"), torch.zeros(64, dtype=torch.int32, device="mps")
    for _ in range(2):
        assert said_of(checked.turn, y, x, **GROUP) == [
            "The Metal kernel `turn` takes argument 0 as `float*`, but the call passed a tensor of int32: its bytes "
            "are misread."
        ]
        square = torch.ones(8, 8, device="mps")
        assert said_of(checked.turn, square, square.clone().T, **GROUP) == [
            "The Metal kernel `turn` got a tensor that is not contiguous as argument 1, with strides (1, 8): it reads "
            "the storage as it lies in memory, and the call passed no strides."
        ]


def _deciding(body: str, head: str = "", **known: bool) -> set[int] | None:
    """Of a kernel with that body, whose buffer 0 is written and whose buffers 1 to 3 are not."""
    text = f"""struct Two {{ int a, b; }};
    {head}
    kernel void k(device int* o, device const int* d, constant float* x, constant int& n,
                  uint i [[thread_index_in_threadgroup]]) {{
      threadgroup int t[64];
      int k = 0;
      {body}
    }}"""
    found = deciding_buffers(Program(text), **known).get("k")
    return None if found is None else set(found)


@pytest.mark.parametrize(
    ("body", "buffers"),
    [
        ("o[i] = d[i];", set()),
        ("o[i] = d[n];", {3}),
        ("o[i] = int(x[d[i]]);", {1}),
        ("k = d[i]; o[k] = 1;", {1}),
        ("o[o[i]] = 1;", None),
        ("t[i] = d[i]; o[t[i]] = 1;", None),
        ("if (d[i] > 0) o[i] = 1;", {1}),
        ("if (d[i] > 0) k = 1; o[i] = k;", set()),
        ("if (d[i] > 0) k = 1; o[k] = 1;", {1}),
        ("if (d[i] > 0) return; o[i] = 1;", {1}),
        ("for (int j = 0; j < 9; ++j) { o[i] += k; k = d[j]; }", set()),
        ("for (int j = 0; j < 9; ++j) { o[k] = 1; k = d[j]; }", {1}),
        ("for (int j = 0; j < d[i]; ++j) ++k;", {1}),
        ("while (k < n) { if (x[k] > 1) break; o[k] = ++k; }", {2, 3}),
        ("k = d[i] > 0 ? o[1] : o[2];", {1}),
        ("k = d[i] > 0 && o[1] > 0;", {1}),
        ("k = d[i] > 0 ? 1 : 2; o[i] = k;", set()),
        ("k = d[i] > 0 ? 1 : 2; o[k] = 1;", {1}),
        ("switch (d[i]) { case 1: k = 2; break; default: k = 3; }", {1}),
        ("o[i] = 7 / d[i];", {1}),
        ("o[i] = 7 % d[i];", {1}),
        ("o[i] = d[i] / 7;", set()),
        ("o[i] = int(7.0f / x[i]);", set()),
        ("o[i] = 1 << d[i];", {1}),
        ("o[i] = d[i] << 3;", set()),
        ("if (d[i] > 0) k <<= 40;", {1}),
        ("int a[4] = {0, d[i]}; o[i] = a[n];", {3}),
        ("int a[4] = {0, d[i]}; o[a[1]] = 1;", {1}),
        ("int a[4]; auto b = a; b[0] = d[i];", None),
        ("thread int& r = k; r = d[i]; o[k] = 1;", {1}),
        ("auto& r = k; r = d[i]; o[k] = 1;", {1}),
        ("auto& r = k; k = d[i]; o[r] = 1;", {1}),
        ("device int& r = o[i]; r = d[i]; o[r] = 1;", None),
        ("device int& r = o[d[i]]; r = 1;", {1}),
        ("device const int& r = d[i]; o[i] = r;", set()),
        ("device const int& r = d[i]; o[r] = 1;", {1}),
        ("int2 v = int2(0, 0); thread int& r = v.x; r = d[i]; o[v.y] = 1;", {1}),
        ("int a[2] = {0, 0}; thread int& r = a[1]; r = d[i]; o[i] = r;", None),
        ("o[i] = simd_shuffle_and_fill_down(d[i], 0, 1);", set()),
        ("thread int* r = &k; *r = d[i]; o[k] = 1;", None),
        ("auto p = d + i; o[i] = *p;", set()),
        ("auto p = d + d[i]; o[i] = *p;", {1}),
        ("device const int* p = d + n; o[i] = p[i];", {3}),
        ("o[i] = ((device const int*)x)[i];", set()),
        ("o[((constant int*)x)[i]] = 1;", None),
        ("int2 v = int2(0, d[i]); o[v.x] = 1;", {1}),
        ("Two v = {0, d[i]}; v.a = 3; o[v.a] = 1;", {1}),
        ("{ int k = d[i]; o[i] = k; } o[k] = 1;", set()),
        ("o[i] = simd_sum(d[i]);", set()),
        ("if (d[i] > 0) o[i] = simd_sum(1);", {1}),
        ("o[i] = simd_shuffle(d[i], 3);", set()),
        ("o[i] = simd_shuffle(1, d[i]);", {1}),
        ("if (d[i] > 0) threadgroup_barrier(mem_flags::mem_device);", {1}),
        ("atomic_fetch_add_explicit(&((device atomic_int*)o)[d[i]], 1, memory_order_relaxed);", {1}),
        ("o[i] = unknown(d[i]);", None),
        ("auto f = [&](int j) { return d[j]; }; o[i] = f(i);", None),
        ("[[unroll]] for (int j = 0; j < 4; ++j) o[4 * i + j] = d[j];", set()),
    ],
)
def test_what_decides(body: str, buffers: set[int] | None) -> None:
    """The buffers whose contents decide what a thread touches; None where that is not understood."""
    assert _deciding(body) == buffers


@pytest.mark.parametrize(
    ("head", "body", "buffers"),
    [
        ("int same(int v) { return v; }", "o[i] = same(d[i]);", set()),
        ("int same(int v) { return v; }", "o[same(d[i])] = 1;", {1}),
        ("int one(int v) { if (v > 0) return 1; return 0; }", "o[one(d[i])] = 1;", {1}),
        ("int third(int v) { int a[3] = {v}; return a[v]; }", "o[i] = third(d[i]);", {1}),
        ("int third(int v) { int a[3] = {v}; return a[v]; }", "if (d[i] > 0) k = third(n);", {1, 3}),
        ("int seven(int v, int w) { return w > 0 ? 7 / v : 0; }", "o[i] = seven(n, d[i]);", {1, 3}),
        (
            "int outer(int v); int inner(int v) { return v; } int outer(int v) { return inner(v); }",
            "o[outer(n)] = 1;",
            {3},
        ),
        ("template <typename T> T twice(T v) { return v + v; }", "o[i] = twice<int>(twice(d[i]));", set()),
        ("int load(device const int* p) { return *p; }", "o[i] = load(d);", set()),
        ("int load(device const int* p) { return *p; }", "o[load(d)] = 1;", {1}),
        ("int load(device const int* p) { return *p; }", "o[i] = load(d + d[i]);", {1}),
        ("int load(device const int* p) { return *p; }", "o[load(o)] = 1;", None),
        ("int load(device const int* p) { return *p; }", "o[i] = load(o) + load(d); o[load(d)] = 1;", None),
        ("void store(device int* p, int v) { *p = v; }", "store(o + i, d[i]);", set()),
        ("void store(device int* p, int v) { *p = v; }", "if (d[i] > 0) store(o + i, 1);", {1}),
        ("void store(threadgroup int* p, int v) { *p = v; }", "store(t + i, d[i]); o[t[0]] = 1;", None),
        ("void store(device int& p, int v) { p = v; }", "store(o[i], d[i]);", set()),
        ("void store(device int& p, int v) { p = v; }", "store(o[d[i]], 1);", {1}),
        ("template <typename T> int load(T p) { return p[0]; }", "o[i] = load(d);", None),
        ("template <typename T> void on(thread T& p) { p += 1; }", "auto p = o; on(p); *p = 1;", None),
        ("template <typename T> T load(device const T* p) { return *p; }", "o[load(d)] = 1;", {1}),
        ("void set(thread int& to, int v) { to = v; }", "set(k, d[i]); o[k] = 1;", {1}),
        ("void set(thread int& to, int v) { to = v; }", "set(k, 1); o[k] = d[i];", set()),
        ("void set(thread int& to, int v) { if (v > 0) to = 1; }", "set(k, d[i]); o[k] = 1;", {1}),
        ("void set(thread int& to) { to = 1; }", "if (d[i] > 0) set(k); o[k] = 1;", {1}),
        ("void both(thread int& a, thread int& b, int v) { a = v; v = b; }", "both(k, k, d[i]); o[k] = 1;", {1}),
        (
            "void in(thread int& a, int v) { a = v; } void out(thread int& a, int v) { in(a, v); }",
            "out(k, d[i]); o[k] = 1;",
            {1},
        ),
        ("int pick(int v) { return v; } int pick(device const int* p) { return *p; }", "o[pick(d)] = 1;", {1}),
        ("struct Far { device int* p; };", "Far v; v.p = o; o[i] = v.p[d[i]];", None),
        ("typedef device int* Far;", "Far p = o; p[d[i]] = 1;", None),
        ("#define AT(I) d[I]", "o[AT(i)] = 1;", None),
        ("constant int TABLE[2] = {1, 2};", "o[i] = TABLE[d[i]];", {1}),
        ("constant int TABLE[2] = {1, 2};", "o[TABLE[i]] = 1;", set()),
        ("int operator+(Two a, int v) { return a.a; }", "o[i] = 1;", None),
        ("int exp(int v) { return v; }", "o[exp(d[i])] = 1;", {1}),
    ],
)
def test_what_decides_in_functions_and_types(head: str, body: str, buffers: set[int] | None) -> None:
    """Values are followed through the program's own functions; types that hold addresses are not understood."""
    assert _deciding(body, head) == buffers


def test_what_the_compiler_has_ruled_out_decides_nothing() -> None:
    """Without a division of integers, a sign of division is one of floats, whatever the types are."""
    assert _deciding("auto y = d[i]; o[i] = 7 / y;") == {1}
    assert _deciding("auto y = d[i]; o[i] = 7 / y;", divides=False) == set()
    assert _deciding("o[i] = 7 << d[i];", shifts=False) == set()


def _launched(kernel: Any, way: int) -> tuple[list[str], str, bytes]:
    """What is found in a launch of a kernel of `random_faults`, its error, and what it wrote."""
    numbers = ([0] * 64, [1] * 64, [0, 1] * 32, [0] * 63 + [3], [0] * 64)[way]
    halves = (0.0, 1.0, 0.5, 0.0, 2.0)[way]
    data, x = _ints(*numbers), torch.full((64,), halves, device="mps")
    out, counts = torch.zeros(64, device="mps"), torch.zeros(64, dtype=torch.int32, device="mps")
    error, said = "", []
    take_shader_faults()
    try:
        said = said_of(kernel, out, data, x, 0, counts, arg_casts={3: "int32"}, **GROUP)
    except RuntimeError as raised:
        error = str(raised)
        said = [fault.what for fault in take_shader_faults()]
    written = b"" if said or error else out.cpu().numpy().tobytes() + x.cpu().numpy().tobytes()
    return said, error, written


@settings(
    max_examples=max(1, EXAMPLES // KERNELS // 4) if EXAMPLES else 2,  # each is launched twelve times
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    print_blob=False,
    phases=[Phase.generate],  # a compilation a step is too much to look for a smaller one: the kernel is shown
    suppress_health_check=list(HealthCheck),
)
@given(st.randoms(use_true_random=True))
def test_random_faults_are_found_after_clean_launches(numbers: random.Random) -> None:
    """Launch by launch the findings, the errors and the results are those of a checker that looks at all of them."""
    text = random_faults.source(numbers.randint, KERNELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANYMPS_CHECK_SHADERS", "1")
        repeating, always = torch.mps.compile_shader(text), torch.mps.compile_shader(text)
    ways = (0, 1, 2, 3, 4, 0)
    for number in range(KERNELS):
        name = f"k{number}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                _repeats, "_MOST_APART", 1
            )  # whether a race is one of same values is up to what decides nothing
            found = [_launched(getattr(repeating, name), way) for way in ways]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CleanLaunches, "has", lambda *_: False)
            expected = [_launched(getattr(always, name), way) for way in ways]
        start = text.index(f"kernel void {name}(")
        assert found == expected, text[start : text.find("\nkernel", start) + 1 or None]


if EXAMPLES:
    test_random_faults_are_found_after_clean_launches = seed(SEED)(test_random_faults_are_found_after_clean_launches)
