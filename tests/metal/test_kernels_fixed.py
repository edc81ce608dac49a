"""Compiled kernels made anew for launches that come again: when, and that they give the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kernel_files import bitcode, metallib, module

if TYPE_CHECKING:
    from anymps.metal.kernels import KernelLibrary
    from anymps.metal.kernels._library import CompiledKernel

pytestmark = pytest.mark.usefixtures("virtual_device")

# out[i] = in[strided place] * (scale[0] * scale[1]); the place follows from sizes and strides, as PyTorch finds it.
STRIDED = """
  %s = load <4 x i32>, ptr addrspace(2) %places
  %s0 = extractelement <4 x i32> %s, i64 0
  %st0 = extractelement <4 x i32> %s, i64 1
  %st1 = extractelement <4 x i32> %s, i64 2
  %r = urem i32 %i, %s0
  %q = udiv i32 %i, %s0
  %a = mul i32 %r, %st0
  %b = mul i32 %q, %st1
  %o = add i32 %a, %b
  %ol = zext i32 %o to i64
  %from = getelementptr float, ptr addrspace(1) %in, i64 %ol
  %x = load float, ptr addrspace(1) %from
  %f = load <2 x float>, ptr addrspace(2) %scale
  %f0 = extractelement <2 x float> %f, i64 0
  %f1 = extractelement <2 x float> %f, i64 1
  %f01 = fmul float %f0, %f1
  %y = fmul float %x, %f01
  %k = zext i32 %i to i64
  %to = getelementptr float, ptr addrspace(1) %out, i64 %k
  store float %y, ptr addrspace(1) %to
  ret void"""
BUFFERS = [("out", "float", 0), ("in", "float", 0), ("places", "uint4", 16), ("scale", "float2", 8)]
INDEX = [("i", "thread_position_in_grid")]

# A tree within each row of a group of two dimensions, by the place in the group and the size of the grid.
ROWS_DECLARED = """@parts = internal addrspace(3) global [1024 x float] undef, align 4
declare float @air.simd_sum.f32(float)
declare void @air.wg.barrier(i32, i32)"""
ROWS = """
  %line = mul i32 %y, %width
  %i = add i32 %line, %x
  %k = zext i32 %i to i64
  %from = getelementptr float, ptr addrspace(1) %in, i64 %k
  %v = load float, ptr addrspace(1) %from
  %n = load i32, ptr addrspace(2) %count
  %tl = zext i32 %t to i64
  %mine = getelementptr [1024 x float], ptr addrspace(3) @parts, i64 0, i64 %tl
  br label %loop
loop:
  %j = phi i32 [ 0, %0 ], [ %j1, %loop ]
  %w = phi float [ %v, %0 ], [ %d, %loop ]
  store float %w, ptr addrspace(3) %mine
  call void @air.wg.barrier(i32 2, i32 1)
  %first = load float, ptr addrspace(3) @parts
  %s = call float @air.simd_sum.f32(float %w)
  %m = fadd float %s, %first
  %d = fdiv float %m, 3.0
  call void @air.wg.barrier(i32 2, i32 1)
  %j1 = add i32 %j, 1
  %more = icmp ult i32 %j1, %n
  br i1 %more, label %loop, label %end
end:
  %lx = uitofp i32 %lx0 to float
  %z = fadd float %d, %lx
  %to = getelementptr float, ptr addrspace(1) %out, i64 %k
  store float %z, ptr addrspace(1) %to
  ret void"""


def stored(folder: Path, text: str) -> KernelLibrary:
    """A library with the kernel `f`."""
    from anymps.device import native
    from anymps.metal.kernels import KernelLibrary, Metallib

    path = folder / "kernels.metallib"
    path.write_bytes(metallib({"f": bitcode(text)}))
    return KernelLibrary(Metallib(path), native())


def rows() -> str:
    """The module of ROWS: each position is a number there, so two dimensions are one and the size of the grid."""
    two = ROWS.replace("%x", "%x0").replace("%y", "%y0")
    body = (
        "  %x0 = extractelement <2 x i32> %p, i64 0\n  %y0 = extractelement <2 x i32> %p, i64 1\n"
        f"  %lx0 = extractelement <2 x i32> %l, i64 0\n  %width = extractelement <2 x i32> %g, i64 0\n{two}"
    )
    positions = [
        ("p", "thread_position_in_grid"),
        ("l", "thread_position_in_threadgroup"),
        ("g", "threads_per_grid"),
        ("t", "thread_index_in_threadgroup"),
    ]
    buffers = [("out", "float", 0), ("in", "float", 0), ("count", "uint", 4)]
    text = module("f", buffers, positions, body, ROWS_DECLARED)
    for name in "plg":
        text = text.replace(f"i32 %{name},", f"<2 x i32> %{name},")
    return text


def run(kernel: CompiledKernel, buffers: list[Any], threads: tuple[int, ...], group: tuple[int, ...]) -> torch.Tensor:
    """What it writes into the first buffer, as bits."""
    out = torch.full_like(buffers[0], -1.0)
    kernel.run([out, *buffers[1:]], threads, group, None)
    return out.view(torch.int32)


@pytest.mark.parametrize("scale", [(0.5, 3.0), (1e-30, 1e-10), (1e-40, 1e30)])
def test_a_strided_kernel_gives_the_same_bits(tmp_path: Path, scale: tuple[float, float]) -> None:
    """Its loop over the grid, whose last group is smaller; subnormal products of numbers are zero."""
    library = stored(tmp_path, module("f", BUFFERS, INDEX, STRIDED))
    x = torch.randn(3000, generator=torch.Generator().manual_seed(1)) * 1e20
    buffers = [torch.zeros(1000), x, [10, 7, 25, 0], scale]
    fixed = library.f.fixed(buffers, (1000,), (64,), ())
    special = library.fixed("f", fixed)
    expected = run(library.f, buffers, (1000,), (64,))
    assert torch.equal(run(special, buffers, (1000,), (64,)), expected)
    places = torch.arange(1000) % 10 * 7 + torch.arange(1000) // 10 * 25
    product = torch.tensor(scale).prod() if scale[0] > 1e-29 else torch.tensor(0.0)
    assert torch.equal(expected.view(torch.float32), x[places] * product)


def test_what_is_fixed_is_not_read_again(tmp_path: Path) -> None:
    """Other strides and numbers change nothing, so the comparison above is one of two kernels."""
    library = stored(tmp_path, module("f", BUFFERS, INDEX, STRIDED))
    buffers = [torch.zeros(1000), torch.arange(3000.0), [10, 7, 25, 0], (2.0, 1.0)]
    special = library.fixed("f", library.f.fixed(buffers, (1000,), (64,), (3,)))
    out = run(special, [*buffers[:2], [1, 1, 1, 1], (5.0, 1.0)], (1000,), (64,)).view(torch.float32)
    assert out[11].item() == 5.0 * (1 * 7 + 1 * 25)  # the scale is read anew


@pytest.mark.parametrize("fibers", ["", "1"])
@pytest.mark.parametrize(("threads", "group"), [((64, 32), (32, 8)), ((70, 30), (32, 8)), ((500, 1), (96, 1))])
def test_threads_that_meet_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fibers: str, threads: tuple[int, int], group: tuple[int, int]
) -> None:
    """Loops over lanes and coroutines; whole groups of two dimensions, groups at the edge, and rows."""
    monkeypatch.setenv("ANYMPS_METAL_FIBERS", fibers)
    library = stored(tmp_path, rows())
    count = threads[0] * threads[1]
    buffers = [torch.zeros(count), torch.randn(count, generator=torch.Generator().manual_seed(2)), 3]
    special = library.fixed("f", library.f.fixed(buffers, threads, group, ()))
    expected = run(library.f, buffers, threads, group)
    assert not torch.equal(expected.view(torch.float32), torch.full((count,), -1.0))
    assert torch.equal(run(special, buffers, threads, group), expected)


def test_numbers_that_are_read_anew() -> None:
    """Floats of kernels with functions that LLVM knows values of its own of, and what a kernel writes."""
    from anymps.metal.kernels._fixed import Fixed
    from anymps.metal.kernels._metadata import BufferArgument, Signature

    def argument(slot: int, type_: str, written: bool = False) -> BufferArgument:
        return BufferArgument("n", type_, slot, "constant", written, 4, 4, (), False)

    signature = Signature("f", (argument(0, "uint3"), argument(1, "float"), argument(2, "int", written=True)), 1024)
    fixed = Fixed(((0, b"a"), (1, b"b"), (2, b"c")), (1, 1, 1), (1, 1, 1))
    assert fixed.of(signature, ["air.fmin.f32", "air.sqrt.f32"]).buffers == ((0, b"a"), (1, b"b"))
    assert fixed.of(signature, ["air.fast_exp.f32"]).buffers == ((0, b"a"),)


def test_a_launch_is_described_until_it_has_had_enough_threads(tmp_path: Path) -> None:
    """Launches are told apart by their numbers; small ones, and kernels that ask for no place, are kept at once."""
    from anymps.metal.kernels._hot import ENOUGH, FEW, HotLaunches
    from anymps.metal.kernels.launches import Launch

    library = stored(tmp_path, module("f", BUFFERS, INDEX, STRIDED))
    hot = HotLaunches(library)
    threads = ENOUGH // 2
    buffers = [torch.zeros(threads), torch.randn(threads), [10, 7, 25, 0], (1.0, 1.0)]

    def kernel_for(places: list[int], count: int, scale: float = 1.0) -> CompiledKernel | None:
        given = [*buffers[:2], places, (scale, 1.0)]
        return hot.kernel_for(Launch("f", tuple(given), (count,), (64,)), library.f, given, [3])

    assert kernel_for([10, 7, 25, 0], FEW - 1) is library.f
    assert kernel_for([10, 7, 25, 0], threads) is None
    assert kernel_for([9, 7, 25, 0], threads) is None
    special = kernel_for([10, 7, 25, 0], threads, scale=2.0)  # the scale is no part of it
    assert special is not None
    assert special is not library.f
    assert kernel_for([10, 7, 25, 0], threads) is special
    assert library.at(special.entry) is special
    library.f.depends = False
    assert kernel_for([8, 7, 25, 0], threads) is library.f


@pytest.mark.parametrize("kept", [False, True])
def test_what_is_described_each_time_runs_on_a_kernel_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Once it has had enough threads, and with the same bits; a work that is kept is counted by its recipe alone."""
    from anymps.metal.kernels import Launcher
    from anymps.metal.kernels._hot import ENOUGH, FEW
    from anymps.metal.kernels._library import CompiledKernel
    from anymps.metal.kernels.launches import DESCRIBED, Call, Launch, Work

    library = stored(tmp_path, module("f", BUFFERS, INDEX, STRIDED))
    ran: list[CompiledKernel] = []
    run_it = CompiledKernel.run
    monkeypatch.setattr(CompiledKernel, "run", lambda self, *rest: ran.append(self) or run_it(self, *rest))

    def describe(call: Call) -> Work:
        x = call.given["self"]
        out = torch.empty(x.numel())
        places = [x.shape[0], x.shape[1], 1, 0]  # it turns rows into columns
        return Work((out,), (Launch("f", (out, x, places, (2.0, 1.0)), (out.numel(),), (64,)),), kept=kept)

    monkeypatch.setitem(DESCRIBED, "exp", describe)  # type: ignore[arg-type]  # it is a dict
    launcher = Launcher(library, (2, 13))

    def answer(rows: int, columns: int) -> bool:
        """Whether it came with a recipe."""
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(3))
        results, recipe, _ = launcher.answer("aten::exp", [x], [])
        assert results is not None
        assert torch.equal(results[0], 2 * x.t().reshape(-1))
        return recipe is not None

    recipes = [answer(256, ENOUGH // 512) for _ in range(3)]
    if kept:
        assert (recipes, ran) == ([False, True, True], [library.f] * 3)
        return
    special = ran[1]
    assert special is not library.f
    assert library.at(special.entry) is special
    assert (recipes, ran) == ([False] * 3, [library.f, special, special])
    ran.clear()
    assert not any(answer(8, FEW // 16) for _ in range(4))
    assert ran == [library.f] * 4


def test_an_operator_without_a_kernel_in_the_release_is_not_offered(tmp_path: Path) -> None:
    """What is offered tells which argument its launches take anew, and whether torch may make it of others."""
    from anymps.device import native
    from anymps.metal.kernels import KernelLibrary, Launcher, Metallib

    def offered(kernel: str) -> list[tuple[str, int, bool]]:
        (tmp_path / kernel).write_bytes(metallib({kernel: bitcode(module(kernel, BUFFERS, INDEX, STRIDED))}))
        operators = Launcher(KernelLibrary(Metallib(tmp_path / kernel), native()), (2, 15)).operators()
        return [one for one in operators if one[0].startswith(("aten::addcdiv", "aten::linalg_lu_solve"))]

    assert offered("addcmul_dense_float_float_float") == []
    found = offered("addcdiv_dense_float_float_float")
    assert found == [(f"aten::addcdiv{end}", 1 << 3, False) for end in ("", ".out", "_")]
    found = offered("trsmDiagSolveLU_float_lower_unit")
    assert found == [(f"aten::linalg_lu_solve{end}", 0, True) for end in ("", ".out")]
