"""How Metal kernels are called: buffers, constants, structs, grids, templates, and what a Mac refuses."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from pathlib import Path

import pytest
import torch

import anymps
from metal.forms import error_of
from metal_shaders import BASICS, HEAD, library

pytestmark = pytest.mark.usefixtures("virtual_device")
REPORT = "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"


def test_a_kernel_writes_where_its_tensor_points() -> None:
    """Tensors are pointers at their storage offset; the grid is the first tensor's size."""
    x, y = torch.arange(10.0), torch.ones(10)
    on_mps = y.to("mps")
    library(BASICS).saxpy(on_mps[2:], x.to("mps")[1:], 2.0, threads=5)
    expected = y.clone()
    expected[2:7] += 2 * x[1:6]
    assert expected.tolist() == on_mps.tolist()
    library(BASICS).saxpy(on_mps, x.to("mps"), 1.0)
    assert (expected + x).tolist() == on_mps.tolist()


@pytest.mark.parametrize(("grid", "group"), [((5, 4, 3), (2, 3, 2)), ((7, 5, 1), (4, 4, 1)), ((9, 1, 1), (4, 1, 1))])
def test_groups_at_the_edges_are_smaller(grid: tuple[int, ...], group: tuple[int, ...]) -> None:
    """Every position attribute in one to three dimensions, with grids that groups do not divide."""
    out = torch.zeros(grid[2], grid[1], grid[0], 8, dtype=torch.int32, device="mps")
    used = 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1
    library(BASICS).places(out, threads=grid[:used], group_size=group[:used])
    groups = [-(-n // g) for n, g in zip(grid, group, strict=True)]
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                p = (x, y, z)
                local = [a % b for a, b in zip(p, group, strict=True)]
                which = [a // b for a, b in zip(p, group, strict=True)]
                size = [min(b, n - w * b) for b, n, w in zip(group, grid, which, strict=True)]
                assert out[z, y, x, :6].tolist() == [
                    local[0] + 100 * local[1] + 10000 * local[2],
                    which[0] + 100 * which[1] + 10000 * which[2],
                    size[0] * size[1] * size[2],
                    group[0] * group[1] * group[2],
                    groups[0] + 100 * groups[1] + 10000 * groups[2],
                    local[0] + size[0] * (local[1] + size[1] * local[2]),
                ]


def test_instances_of_templates_have_their_host_names() -> None:
    """Three ways to write an instance; `dir` lists the kernels by the names that a host calls them by."""
    kernels = library(BASICS)
    for name, dtype in (("count_float", torch.float32), ("count_half", torch.float16), ("count_long", torch.int64)):
        out = torch.zeros(12, dtype=dtype, device="mps")
        getattr(kernels, name)(out)
        assert list(range(12)) == out.tolist()
    assert dir(kernels) == [
        "constants", "count_float", "count_half", "count_long", "few", "gather", "move", "places", "saxpy", "swizzles",
    ]  # fmt: skip


def test_structs_lie_as_on_the_host() -> None:
    """float2 is aligned to 8 bytes, packed_float3 to 4; a struct comes as bytes; buffers may be numbered."""
    layout = struct.Struct("2f3fi")
    bodies = b"".join(layout.pack(i, 2 * i, 1, 2, 3, 10 * i) for i in range(4))
    by = layout.pack(1, 10, 0, 0, 0, 5)
    on_mps = torch.tensor(list(bodies), dtype=torch.uint8, device="mps")
    library(BASICS).move(torch.tensor(list(by), dtype=torch.uint8, device="mps"), on_mps, threads=4)
    moved = list(layout.iter_unpack(bytes(on_mps.tolist())))
    assert moved == [(i + 1.0, 2 * i + 10.0, 6.0, 4.0, 2.0, 10 * i - 5) for i in range(4)]


def test_a_list_of_tensors_is_an_array_of_pointers() -> None:
    """Each at its own offset."""
    parts = [torch.arange(4.0, device="mps") + 10 * i for i in range(3)]
    out = torch.zeros(9, device="mps")
    library(BASICS).gather(out, [parts[0], parts[1][1:], parts[2]])
    assert [0, 11, 20, 1, 12, 21, 2, 13, 22] == out.tolist()


def test_constants_come_as_torch_hands_them_over() -> None:
    """int as int64, float as float32, lists as arrays, 0-dim CPU tensors by value, and `arg_casts`."""
    out = torch.zeros(5, dtype=torch.int64, device="mps")
    library(BASICS).constants(out, -7, 2.5, [3, 4], (1.0, 0.25), 70000 + 5, arg_casts={5: "int16"}, threads=1)
    assert [-7, 10, 7, 1, 4469] == out.tolist()
    cpu = torch.tensor(2.5, dtype=torch.float64)
    library(BASICS).constants(out, torch.tensor(9), cpu, [3, 4], (1.0, 0.25), -2, arg_casts={5: "int16"}, threads=1)
    assert [9, 10, 7, 1, -2] == out.tolist()


def test_swizzles_read_and_are_assigned_to() -> None:
    """Vectors of elements in any order, on both sides."""
    v = torch.tensor([[1.0, 2, 3, 4]], device="mps")
    library(BASICS).swizzles(v, threads=1)
    assert [[8.0, 3.0, 4.5, 3.5]] == v.tolist()


def test_a_kernel_tells_its_limits() -> None:
    """The attributes of a kernel."""
    kernels = library(BASICS)
    assert (1024, 32, 0) == (
        kernels.saxpy.max_threads_per_threadgroup,
        kernels.saxpy.thread_execution_width,
        kernels.saxpy.static_thread_group_memory_length,
    )
    assert kernels.few.max_threads_per_threadgroup == 64


def text_of(error: type[Exception], *args: object, kernel: str = "saxpy", **options: object) -> str:
    """What a call raises."""
    with pytest.raises(error) as raised:
        getattr(library(BASICS), kernel)(*args, **options)
    assert type(raised.value) is error
    return str(raised.value)


def test_a_grid_that_is_too_long_is_refused() -> None:
    """One sentence instead of a kernel that counts beyond its int."""
    x = torch.zeros(3, device="mps")
    text = "anymps: 2,147,483,648 threads along x; here a kernel runs at most 2,147,483,647"
    assert text_of(RuntimeError, x, x, 1.0, threads=2**31) == text


def test_what_torch_refuses_is_refused_in_its_words() -> None:
    """Types and texts of a Mac."""
    x = torch.zeros(3, device="mps")
    assert text_of(RuntimeError, torch.zeros(3)) == "Passed CPU tensor to MPS op"
    assert text_of(RuntimeError, x, [torch.zeros(3)]) == "Passed CPU tensor to MPS op"
    assert text_of(RuntimeError, 12) == "Number of threads is undefined or has wrong dimension"
    assert text_of(RuntimeError, x, []) == "Empty list/tuple can not be an argument to metal kernel"
    assert text_of(RuntimeError, x, ["a"]) == "Unexpected argument types"
    assert text_of(RuntimeError, x, "a") == "Unsupported argument type"
    assert text_of(RuntimeError, x, 1, arg_casts="int3") == "Unsupported cast instruction int3"
    assert text_of(RuntimeError, x, 1, arg_casts=3) == "Unexpected caster arg type int"
    assert text_of(RuntimeError, x, threads=(3, 3), group_size=3) == (
        "Expected !group_size.has_value() || threads->size() == group_size->size() to be true, but got false.  "
        + REPORT
    )
    assert text_of(RuntimeError, x, threads=(1, 1, 1, 1)) == (
        f"Expected vec.size() > 0 && vec.size() < 4 to be true, but got false.  {REPORT}"
    )
    assert text_of(ValueError, x, group_size=1029) == "Threadgroup size exceeds 1024 limit"
    assert text_of(ValueError, x, threads=(3, 1024), group_size=(3, 1024)) == "Threadgroup size exceeds 1024 limit"
    assert text_of(ValueError, x, kernel="few", group_size=65) == "Threadgroup size exceeds 64 limit"
    assert error_of(getattr, library(BASICS), "not_there") == "Failed to create function state object for: not_there"


def test_an_empty_grid_runs_nothing() -> None:
    """As a dispatch of no threads does: what lies where the empty tensor begins is as before."""
    out = torch.full((3,), 7.0, device="mps")
    library(BASICS).count_float(out[1:1])
    assert out.tolist() == [7.0, 7.0, 7.0]


def test_constants_of_all_lengths_in_one_call() -> None:
    """Each lies where vectors may be read, also beside an error buffer, lists and buffers that the call leaves out."""
    kernels = torch.mps.compile_shader(
        HEAD
        + """
struct Floats { float at[5]; };
kernel void mixed(device float* out, constant Floats& list, constant long& whole, constant float4& four,
                  constant float& one, device float* const* all, constant uchar& small,
                  uint i [[thread_position_in_grid]]) {
  out[i] = list.at[4] + whole + four.w + one + all[1][i] + small;
}
kernel void left_out(device float* out, constant float* none, uint i [[thread_position_in_grid]]) {
  out[i] = none == nullptr;
}
"""
    )
    out = torch.zeros(3, device="mps")
    pair = [torch.zeros(3, device="mps"), torch.tensor([1.0, 2.0, 3.0], device="mps")]
    for _ in range(2):
        kernels.mixed(
            out,
            [0.0] * 4 + [1000.0],
            200,
            [0.0, 0.0, 0.0, 0.5],
            0.25,
            pair,
            10,
            arg_casts={6: "uint8"},
            error_buf_idx=7,
        )
        assert out.tolist() == [1211.75, 1212.75, 1213.75]
    kernels.left_out(out)
    assert out.tolist() == [1, 1, 1]


TWICE = """
kernel void twice(device float* out, constant float* a, uint i [[thread_position_in_grid]]) { out[i] = 2 * a[i]; }
kernel void far(device float* out, constant float* a, uint i [[thread_position_in_grid]]) { out[i + uint(a[0])] = 1; }
"""


def test_a_launch_like_an_earlier_one_reads_its_own_arguments() -> None:
    """Tensors, sizes and groups of this call, however often the kernel ran; what is refused is refused each time."""
    kernels = torch.mps.compile_shader(TWICE)
    for threads in (8, 8, [8], (8,), 3, 8):
        a, out = torch.randn(8), torch.ones(8, device="mps") - 1  # computed: a launch moves it to memory with margins
        kernels.twice(out, a.to("mps"), threads=threads)
        count = 3 if threads == 3 else 8
        assert out.tolist() == [*(2 * a[:count]).tolist(), *[0.0] * (8 - count)]
    out = torch.zeros(8, device="mps")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Passed CPU tensor to MPS op"):
            kernels.twice(out, torch.ones(8), threads=8)
        with pytest.raises(RuntimeError, match="Unable to cast Python instance of type <class 'float'>"):
            kernels.twice(out, torch.ones(8, device="mps"), threads=(8.0,))
        with pytest.raises(RuntimeError, match="Unable to cast Python instance of type <class 'dict'>"):
            kernels.twice(out, torch.ones(8, device="mps"), threads={8: 8})
        with pytest.raises(ValueError, match="Threadgroup size exceeds 1024 limit"):
            kernels.twice(out, torch.ones(8, device="mps"), threads=8, group_size=2000)
        kernels.twice(out, 4.0, threads=1)
        assert out.tolist()[:1] == [8.0]
    assert out.tolist()[1:] == [0.0] * 7


def test_a_launch_like_an_earlier_one_is_looked_at(tmp_path: Path) -> None:
    """A write beside its buffer, an address that is not there, and a recording that began in between."""
    kernels = torch.mps.compile_shader(TWICE)
    at, out = torch.zeros(8, device="mps"), torch.zeros(8, device="mps")
    for distance in (0, 0):
        at.fill_(distance)
        kernels.far(out, at)
    at.fill_(1)
    with pytest.raises(RuntimeError, match="'far' wrote 4 bytes past the end of argument 0, starting at byte 32 of 32"):
        kernels.far(out, at)
    at.fill_(4e9)
    with pytest.raises(RuntimeError, match="'far' read or wrote memory that does not exist"):
        kernels.far(out, at)
    with anymps.record(tmp_path / "run.anymps"):
        kernels.twice(out, at)
        kernels.twice(out, at)
    with contextlib.closing(sqlite3.connect(tmp_path / "run.anymps")) as file:
        names = file.execute(
            "SELECT o.name FROM entries e JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator"
        ).fetchall()
    assert names.count(("metal::twice.threads_8_group_8",)) == 2


def test_cpu_scalars_of_launches_that_repeat_one() -> None:
    """A tensor without dimensions on the CPU is a constant of its own type; other ones are refused each time."""
    kernel = library(
        HEAD
        + "kernel void put(device float* o, constant float& f, constant long& n, constant bool& b, constant half& h,"
        " uint i [[thread_position_in_grid]]) { o[i] = f + n + b + h; }"
    ).put
    out = torch.zeros(3, device="mps")

    def run(f: float, n: int, b: bool, h: float, dtype: torch.dtype = torch.float32) -> float:
        scalars = torch.tensor(f, dtype=dtype), torch.tensor(n), torch.tensor(b), torch.tensor(h, dtype=torch.half)
        kernel(out, *scalars)
        return float(out[2].item())

    assert run(0.5, 1, True, 2.0) == 4.5
    assert (run(0.25, -7, False, 1.5), run(3.0, 1 << 20, True, -2.0)) == (-5.25, (1 << 20) + 2.0)
    assert run(1e39, 1, True, 0.0, torch.float64) == float("inf")
    scalar = torch.tensor(1.0)
    with pytest.raises(RuntimeError, match=r"^Passed CPU tensor to MPS op$"):
        kernel(out, scalar.reshape(1), scalar.long(), scalar.bool(), scalar.half())
    negative = torch.tensor(1 - 2j).conj().imag  # the sign is not in its bytes
    assert negative.is_neg()
    kernel(out, negative, scalar.long(), scalar.bool(), scalar.half())
    assert out.tolist() == [5.0] * 3
