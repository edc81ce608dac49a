"""Compiled Metal kernels on this machine: translated, kept, called; alone and in groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from anymps import KernelsError
from kernel_files import ADD, bitcode, metallib, module, needs_kernels

if TYPE_CHECKING:
    from anymps.kernels import KernelLibrary

pytestmark = pytest.mark.usefixtures("virtual_device")

INDEX = [("i", "thread_position_in_grid")]


def kernels(folder: Path, **texts: str) -> KernelLibrary:
    """A library of kernels, each given as its text."""
    from anymps.device import native
    from anymps.kernels import KernelLibrary, Metallib

    path = folder / "kernels.metallib"
    path.write_bytes(metallib({name: bitcode(text) for name, text in texts.items()}))
    return KernelLibrary(Metallib(path), native())


def unary(name: str, call: str, into: str = "float", of: str = "float", declared: str = "") -> str:
    """A kernel with out[i] = `call` of %x."""
    body = f"""
      %k = zext i32 %i to i64
      %from = getelementptr {of}, ptr addrspace(1) %in, i64 %k
      %x = load {of}, ptr addrspace(1) %from
      {call}
      %to = getelementptr {into}, ptr addrspace(1) %out, i64 %k
      store {into} %y, ptr addrspace(1) %to
      ret void"""
    return module(name, [("out", into, 0), ("in", of, 0)], INDEX, body, declared)


def apply(folder: Path, function: str, x: torch.Tensor, into: torch.dtype, types: tuple[str, str]) -> torch.Tensor:
    """The results of a function of Apple's compiler with one argument."""
    result, of = types
    text = unary("f", f"%y = call {result} @{function}({of} %x)", result, of, f"declare {result} @{function}({of})")
    out = torch.zeros(x.shape, dtype=into, device="mps")
    kernels(folder, f=text).f(out, x.to("mps"), threads=x.numel())
    return out.cpu()


def test_a_kernel_is_called_like_a_shader(tmp_path: Path) -> None:
    """Buffers in order or by name, structs as dicts; the grid's size is that of `threads`."""
    library = kernels(tmp_path, add_dense_float_float=ADD)
    x = torch.randn(1000)
    out = torch.zeros(1000, device="mps")
    by = {"value": -2.0, "rest": [1, 2]}
    library.add_dense_float_float(out, x.to("mps"), by, threads=1000)
    assert torch.equal(out.cpu(), x + 2)
    library["add_dense_float_float"](by=by, out=out, **{"in": out}, threads=10)  # in place
    assert torch.equal(out.cpu(), torch.cat([x[:10] + 2 + 2, x[10:] + 2]))
    assert dir(library) == ["add_dense_float_float"]
    assert "add" not in library
    with pytest.raises(AttributeError, match=r"there is no kernel add \(anymps kernels list\)"):
        library.add  # noqa: B018


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    """Each is a TypeError that names the argument."""
    kernel = kernels(tmp_path, add_dense_float_float=ADD).add_dense_float_float
    x = torch.zeros(4, device="mps")
    for by, text in (
        ({"value": 1.0}, "By needs the field rest: it has value, rest"),
        ({"value": 1.0, "rest": [1], "more": 1}, "By has no field more: it has value, rest"),
        (
            {"value": "a", "rest": [1]},
            "value is of type float, and 'a' does not fit: could not convert string to float: 'a'",
        ),
        ({"value": 1.0, "rest": [1, 2, 3]}, "metal::array.__elems has room for 8 bytes, and 12 were given"),
        (1.0, "By is a struct: pass it as a dict of value, rest"),
    ):
        with pytest.raises(TypeError) as caught:
            kernel(x, x, by, threads=4)
        assert str(caught.value) == text
    with pytest.raises(TypeError, match="add_dense_float_float takes 3 buffers, but 4 were given"):
        kernel(x, x, x, x, threads=4)
    with pytest.raises(TypeError, match="add_dense_float_float takes no other"):
        kernel(x, x, other=1, threads=4)
    with pytest.raises(TypeError, match="out was given twice"):
        kernel(x, x, out=x, threads=4)


def test_a_buffer_that_is_not_given(tmp_path: Path) -> None:
    """Its address is none, for which kernels ask."""
    text = module(
        "f",
        [("out", "float", 0), ("in", "float", 0)],
        INDEX,
        """
      %none = icmp eq ptr addrspace(1) %in, null
      %y = select i1 %none, float 1.0, float 2.0
      store float %y, ptr addrspace(1) %out
      ret void""",
    )
    kernel, out = kernels(tmp_path, f=text).f, torch.zeros(1, device="mps")
    kernel(out, None, threads=1)
    assert out.item() == 1
    kernel(out, out, threads=1)
    assert out.item() == 2


def test_launches_are_operators(tmp_path: Path) -> None:
    """As those of shaders: an operator with the name of the kernel, and its grid as overload."""
    import anymps

    library = kernels(tmp_path, add_dense_float_float=ADD)
    x = torch.zeros(4, device="mps")
    with anymps.record():
        library.add_dense_float_float(x, x, {"value": 1.0, "rest": [0, 0]}, threads=4)
    assert x.tolist() == [1.0] * 4
    assert "threads_4_group_4" in torch.ops.metal.add_dense_float_float.overloads()


def test_subnormal_numbers_are_zero_in_a_kernel(tmp_path: Path) -> None:
    """As the kernels were compiled for; what the program does afterwards keeps them."""
    tiny = torch.tensor([1e-40, 1.5e-38, 1.0])
    text = unary("halve", "%y = fmul float %x, 5.000000e-01")
    out = torch.ones(3, device="mps")
    kernels(tmp_path, halve=text).halve(out, tiny.to("mps"), threads=3)
    assert out.cpu().tolist() == [0.0, 0.0, 0.5]
    assert (tiny * 0.5)[0].item() > 0


def test_conversions(tmp_path: Path) -> None:
    """Floats beyond an integer become the nearest one, NaN becomes 0; halves and bfloats meet by way of floats."""
    x = torch.tensor([1.9, -1.9, 1e20, -1e20, float("nan"), 300.0])
    found = apply(tmp_path, "air.convert.s.i32.f.f32", x, torch.int32, ("i32", "float"))
    assert found.tolist() == [1, -1, 2**31 - 1, -(2**31), 0, 300]
    found = apply(tmp_path, "air.convert.u.i8.f.f32", x, torch.uint8, ("i8", "float"))
    assert found.tolist() == [1, 0, 255, 0, 0, 255]
    halves = torch.tensor([1.0, 1.001, 65504.0, -0.1], dtype=torch.float16)
    found = apply(tmp_path, "air.convert.f.bf16.f.f16", halves, torch.bfloat16, ("bfloat", "half"))
    assert torch.equal(found, halves.float().bfloat16())
    numbers = torch.tensor([2**62 + 1, -5, 70000])
    found = apply(tmp_path, "air.convert.f.f16.s.i64", numbers, torch.float16, ("half", "i64"))
    assert found.tolist() == [float("inf"), -5.0, float("inf")]


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        ("air.exp.f32", torch.exp),
        ("air.rsqrt.f32", torch.rsqrt),
        ("air.fast_tanh.f32", torch.tanh),
        ("air.sinpi.f32", lambda x: torch.sin(x.double() * torch.pi).float()),
        ("air.rint.f32", torch.round),
        ("air.fract.f32", lambda x: x - x.floor()),
    ],
)
def test_mathematics(tmp_path: Path, function: str, reference: object) -> None:
    """Within a few units in the last place of torch's own."""
    assert callable(reference)
    x = torch.linspace(0.1, 9.3, 500)
    found = apply(tmp_path, function, x, torch.float32, ("float", "float"))
    torch.testing.assert_close(found, reference(x), rtol=5e-7, atol=2e-7)


def test_an_absolute_value_without_a_sign_is_itself(tmp_path: Path) -> None:
    """255 is not -1: Apple's compiler names the function of unsigned numbers apart."""
    x = torch.tensor([0, 127, 128, 255], dtype=torch.uint8)
    assert apply(tmp_path, "air.abs.u.i8", x, torch.uint8, ("i8", "i8")).tolist() == [0, 127, 128, 255]
    assert apply(tmp_path, "air.abs.s.i8", x, torch.uint8, ("i8", "i8")).tolist() == [0, 127, 128, 1]


def test_threads_work_together(tmp_path: Path) -> None:
    """SIMD sums, threadgroup memory and a barrier: each group's sum, for groups at the edge too."""
    body = """
      %k = zext i32 %i to i64
      %from = getelementptr float, ptr addrspace(1) %in, i64 %k
      %x = load float, ptr addrspace(1) %from
      %s = call float @air.simd_sum.f32(float %x)
      %sl = zext i32 %simd to i64
      %part = getelementptr [32 x float], ptr addrspace(3) @parts, i64 0, i64 %sl
      store float %s, ptr addrspace(3) %part
      call void @air.wg.barrier(i32 2, i32 1)
      %first = icmp eq i32 %t, 0
      br i1 %first, label %sum, label %end
    sum:
      %n1 = add i32 %n, 31
      %count = lshr i32 %n1, 5
      br label %loop
    loop:
      %j = phi i32 [ 0, %sum ], [ %j1, %loop ]
      %all = phi float [ 0.0, %sum ], [ %all1, %loop ]
      %jl = zext i32 %j to i64
      %p = getelementptr [32 x float], ptr addrspace(3) @parts, i64 0, i64 %jl
      %v = load float, ptr addrspace(3) %p
      %all1 = fadd float %all, %v
      %j1 = add i32 %j, 1
      %more = icmp ult i32 %j1, %count
      br i1 %more, label %loop, label %done
    done:
      %gl = zext i32 %g to i64
      %to = getelementptr float, ptr addrspace(1) %out, i64 %gl
      store float %all1, ptr addrspace(1) %to
      br label %end
    end:
      ret void"""
    text = module(
        "group_sum",
        [("out", "float", 0), ("in", "float", 0)],
        [
            *INDEX,
            ("t", "thread_position_in_threadgroup"),
            ("g", "threadgroup_position_in_grid"),
            ("n", "threads_per_threadgroup"),
            ("simd", "simdgroup_index_in_threadgroup"),
        ],
        body,
        "@parts = internal addrspace(3) global [32 x float] undef, align 4\n"
        "declare float @air.simd_sum.f32(float)\ndeclare void @air.wg.barrier(i32, i32)",
    )
    kernel = kernels(tmp_path, group_sum=text).group_sum
    assert kernel.static_thread_group_memory_length == 128
    x = torch.randint(-9, 9, (1000,)).float()
    out = torch.zeros(4, device="mps")
    kernel(out, x.to("mps"), threads=1000, group_size=256)
    assert out.cpu().tolist() == [x[at : at + 256].sum().item() for at in range(0, 1000, 256)]


def test_simd_moves_and_votes(tmp_path: Path) -> None:
    """A shuffle of a vector goes element by element; a vote sees the lanes that are there."""
    body = """
      %k = zext i32 %i to i64
      %a = insertelement <2 x i32> poison, i32 %i, i32 0
      %m = mul i32 %i, 10
      %b = insertelement <2 x i32> %a, i32 %m, i32 1
      %s = call <2 x i32> @air.simd_shuffle_and_fill_up.u.v2i32(<2 x i32> %b, <2 x i32> <i32 7, i32 8>, i16 1, i16 32)
      %x = extractelement <2 x i32> %s, i32 0
      %y = extractelement <2 x i32> %s, i32 1
      %c = icmp eq i32 %i, 3
      %v = call i1 @air.simd_any(i1 %c)
      %w = zext i1 %v to i32
      %xy = add i32 %x, %y
      %z = mul i32 %w, 1000
      %r = add i32 %xy, %z
      %to = getelementptr i32, ptr addrspace(1) %out, i64 %k
      store i32 %r, ptr addrspace(1) %to
      ret void"""
    text = module(
        "moves",
        [("out", "int", 0)],
        INDEX,
        body,
        "declare <2 x i32> @air.simd_shuffle_and_fill_up.u.v2i32(<2 x i32>, <2 x i32>, i16, i16)\n"
        "declare i1 @air.simd_any(i1)",
    )
    out = torch.zeros(40, dtype=torch.int32, device="mps")
    kernels(tmp_path, moves=text).moves(out, threads=40, group_size=32)
    expected = [1000 + (15 if i == 0 else 11 * (i - 1)) for i in range(32)]
    assert out.cpu().tolist()[:32] == expected
    assert out.cpu().tolist()[33:] == [11 * (i - 1) for i in range(33, 40)]


def test_a_shuffle_of_short_numbers(tmp_path: Path) -> None:
    """Where value, fill and distance are of one type."""
    body = """
      %k = zext i32 %i to i64
      %a = trunc i32 %i to i16
      %s = call i16 @air.simd_shuffle_and_fill_up.s.i16(i16 %a, i16 -5, i16 2, i16 32)
      %to = getelementptr i16, ptr addrspace(1) %out, i64 %k
      store i16 %s, ptr addrspace(1) %to
      ret void"""
    declared = "declare i16 @air.simd_shuffle_and_fill_up.s.i16(i16, i16, i16, i16)"
    text = module("moves", [("out", "short", 0)], INDEX, body, declared)
    out = torch.zeros(32, dtype=torch.int16, device="mps")
    kernels(tmp_path, moves=text).moves(out, threads=32)
    assert out.cpu().tolist() == [-5, -5, *range(30)]


def test_atomics(tmp_path: Path) -> None:
    """Each thread adds one; a weak exchange gives the value that was there."""
    body = """
      %a = call i32 @air.atomic.global.add.u.i32(ptr addrspace(1) %out, i32 2, i32 0, i32 2, i1 true)
      ret void"""
    text = module(
        "count",
        [("out", "uint", 0)],
        INDEX,
        body,
        "declare i32 @air.atomic.global.add.u.i32(ptr addrspace(1), i32, i32, i32, i1)",
    )
    out = torch.zeros(1, dtype=torch.int32, device="mps")
    kernels(tmp_path, count=text).count(out, threads=100000)
    assert out.item() == 200000


def test_what_cannot_run_is_named(tmp_path: Path) -> None:
    """A function that only Apple's driver has, and bitcode that is none."""
    text = unary(
        "f", "%y = call float @air.tensor_op.f32(float %x)", declared="declare float @air.tensor_op.f32(float)"
    )
    with pytest.raises(KernelsError) as caught:
        kernels(tmp_path, f=text).f  # noqa: B018
    assert str(caught.value) == "air.tensor_op.f32 is a function of Apple's compiler that is not known here"
    from anymps.device import native
    from anymps.kernels import KernelLibrary, Metallib

    path = tmp_path / "bad.metallib"
    path.write_bytes(metallib({"f": b"BC\xc0\xde no module"}))
    with pytest.raises(KernelsError, match="LLVM cannot read the bitcode of the kernel f: "):
        KernelLibrary(Metallib(path), native()).f  # noqa: B018


def test_a_faulty_kernel_does_not_end_the_process(tmp_path: Path) -> None:
    """A read far before a buffer is a RuntimeError, as in a shader; floats are again as the program has them."""
    x = torch.ones(4, dtype=torch.int32, device="mps")
    out = torch.zeros(4, dtype=torch.int32, device="mps")
    bad = "%q = add i64 %k, -1099511627776\n %p = getelementptr i32, ptr addrspace(1) %in, i64 %q\n"
    text = unary("f", f"{bad} %y = load i32, ptr addrspace(1) %p", "i32", "i32")
    torch.set_flush_denormal(True)
    try:
        with pytest.raises(RuntimeError, match="the Metal kernel 'f' read or wrote memory that does not exist"):
            kernels(tmp_path, f=text).f(out, x, threads=4)
        assert (torch.tensor([1e-40]) * 0.5).item() == 0
    finally:
        torch.set_flush_denormal(False)


def test_real_kernels_where_they_were_added() -> None:
    """Those of the installed release: the order of a sum, a bug of the backend, an error buffer."""
    import anymps

    needs_kernels(torch.__version__.partition("+")[0])
    library = anymps.metal_kernels()
    x, out = torch.randn(1000, device="mps"), torch.zeros(1000, device="mps")
    library.abs_dense_float_float(out, x, 1000, threads=250)
    assert torch.equal(out, x.abs())
    rows, sums = torch.randint(-9, 9, (40, 300)).float().to("mps"), torch.zeros(40, device="mps")
    library.sum_reduction_inner_float_float(rows, sums, [40, 300], 0.0, threads=40 * 32, group_size=256)
    assert torch.equal(sums, rows.sum(1))
