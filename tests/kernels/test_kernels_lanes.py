"""Compiled kernels whose threads meet: as loops over lanes they give what threads by themselves would."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from anymps import AnympsError
from kernel_files import bitcode, metallib, module

pytestmark = pytest.mark.usefixtures("virtual_device")

POSITIONS = [("i", "thread_position_in_grid"), ("t", "thread_position_in_threadgroup")]
DECLARED = """@parts = internal addrspace(3) global [256 x float] undef, align 4
declare float @air.simd_sum.f32(float)
declare float @air.simd_max.f32(float)
declare float @air.simd_shuffle_xor.f32(float, i16)
declare i1 @air.simd_is_first()
declare void @air.wg.barrier(i32, i32)"""
LOAD = """
  %k = zext i32 %i to i64
  %from = getelementptr float, ptr addrspace(1) %in, i64 %k
  %x = load float, ptr addrspace(1) %from
  %to = getelementptr float, ptr addrspace(1) %out, i64 %k
"""

# A tree over threadgroup memory: a barrier in a loop, of which half as many threads take part each time.
TREE = f"""{LOAD}
  %tl = zext i32 %t to i64
  %mine = getelementptr [256 x float], ptr addrspace(3) @parts, i64 0, i64 %tl
  store float %x, ptr addrspace(3) %mine
  call void @air.wg.barrier(i32 2, i32 1)
  br label %loop
loop:
  %half = phi i32 [ 128, %0 ], [ %next, %after ]
  %takes = icmp ult i32 %t, %half
  br i1 %takes, label %add, label %after
add:
  %o = add i32 %t, %half
  %ol = zext i32 %o to i64
  %other = getelementptr [256 x float], ptr addrspace(3) @parts, i64 0, i64 %ol
  %a = load float, ptr addrspace(3) %mine
  %b = load float, ptr addrspace(3) %other
  %s = fadd float %a, %b
  store float %s, ptr addrspace(3) %mine
  br label %after
after:
  call void @air.wg.barrier(i32 2, i32 1)
  %next = lshr i32 %half, 1
  %more = icmp ne i32 %next, 0
  br i1 %more, label %loop, label %end
end:
  %all = load float, ptr addrspace(3) @parts
  %y = fadd float %all, %x
  store float %y, ptr addrspace(1) %to
  ret void"""

# Lanes part: odd ones add what even ones compare; then all meet again. A few leave before.
PARTED = f"""{LOAD}
  %gone = icmp eq i32 %t, 5
  br i1 %gone, label %end, label %stay
stay:
  %bit = and i32 %t, 1
  %odd = icmp eq i32 %bit, 1
  br i1 %odd, label %sum, label %max
sum:
  %s = call float @air.simd_sum.f32(float %x)
  br label %meet
max:
  %m = call float @air.simd_max.f32(float %x)
  br label %meet
meet:
  %v = phi float [ %s, %sum ], [ %m, %max ]
  %w = call float @air.simd_shuffle_xor.f32(float %v, i16 1)
  %y = fsub float %w, %x
  store float %y, ptr addrspace(1) %to
  br label %end
end:
  ret void"""

# The odd lanes ask which of them is the first; then all do.
FIRST = f"""{LOAD}
  %bit = and i32 %t, 1
  %odd = icmp eq i32 %bit, 1
  br i1 %odd, label %some, label %all
some:
  %f = call i1 @air.simd_is_first()
  %v = select i1 %f, float 2.0, float 0.0
  br label %all
all:
  %w = phi float [ 0.0, %0 ], [ %v, %some ]
  %g = call i1 @air.simd_is_first()
  %u = select i1 %g, float 1.0, float 0.0
  %y = fadd float %w, %u
  store float %y, ptr addrspace(1) %to
  ret void"""

# Each lane adds as often as its place says, so fewer take part each time.
UNEVEN = f"""{LOAD}
  br label %loop
loop:
  %j = phi i32 [ 0, %0 ], [ %j1, %loop ]
  %v = phi float [ %x, %0 ], [ %w, %loop ]
  %s = call float @air.simd_sum.f32(float %v)
  %d = fmul float %s, 3.125000e-02
  %w = fsub float %d, %x
  %j1 = add i32 %j, 1
  %three = urem i32 %t, 3
  %more = icmp ult i32 %j, %three
  br i1 %more, label %loop, label %end
end:
  store float %w, ptr addrspace(1) %to
  ret void"""

# After a barrier the eleventh thread of a group reads far away. What a thread has read it divides by.
FAULTY = f"""{LOAD}
  %g = udiv i32 %i, 64
  %here = icmp eq i32 %g, GROUP
  %tenth = icmp eq i32 %t, 10
  %bad = and i1 %here, %tenth
  %tl = zext i32 %t to i64
  %mine = getelementptr [256 x float], ptr addrspace(3) @parts, i64 0, i64 %tl
  store float %x, ptr addrspace(3) %mine
  call void @air.wg.barrier(i32 2, i32 1)
  %far = select i1 %bad, i64 -1099511627776, i64 0
  %k2 = add i64 %k, %far
  %place = getelementptr float, ptr addrspace(1) %in, i64 %k2
  %z = load float, ptr addrspace(1) %place
  %by = fptoui float %z to i32
  %q = udiv i32 %i, %by
  %f = uitofp i32 %q to float
  %y = fadd float %z, %f
  store float %y, ptr addrspace(1) %to
  ret void"""


# Each lane keeps five numbers over a barrier, of which it reads four at once: they begin at a multiple of 16 bytes.
FIVE = f"""{LOAD}
  %kept = alloca [5 x float], align 16
  %one = insertelement <4 x float> poison, float %x, i64 0
  %four = shufflevector <4 x float> %one, <4 x float> poison, <4 x i32> zeroinitializer
  store <4 x float> %four, ptr %kept, align 16
  %tl = zext i32 %t to i64
  %at = urem i64 %tl, 5
  %place = getelementptr [5 x float], ptr %kept, i64 0, i64 %at
  store float %x, ptr %place, align 4
  call void @air.wg.barrier(i32 2, i32 1)
  %again = load <4 x float>, ptr %kept, align 16
  %y = extractelement <4 x float> %again, i64 3
  store float %y, ptr addrspace(1) %to
  ret void"""


def run(folder: Path, body: str, x: torch.Tensor, group: int) -> torch.Tensor:
    """What a kernel writes that runs as loops over lanes."""
    from anymps.device import native
    from anymps.kernels import KernelLibrary, Metallib
    from anymps.kernels._object_files import load_object

    text = module("f", [("out", "float", 0), ("in", "float", 0)], POSITIONS, body, DECLARED)
    path = folder / "kernels.metallib"
    path.write_bytes(metallib({"f": bitcode(text)}))
    stored = Metallib(path)
    out = torch.full_like(x, -1.0).to("mps")
    KernelLibrary(stored, native()).f(out, x.to("mps"), threads=x.numel(), group_size=group)
    assert load_object("f", stored.bitcode("f")).together
    return out.cpu()


def numbers(threads: int) -> torch.Tensor:
    """Whole numbers, whose sums are exact in any order."""
    return torch.randint(-9, 9, (threads,), generator=torch.Generator().manual_seed(2)).float()


@pytest.mark.parametrize("threads", [1024, 1000])
def test_loops_of_different_lengths(tmp_path: Path, threads: int) -> None:
    """In each turn the lanes add that still take part; also in the group at the edge."""
    x = numbers(threads)
    expected = x.clone()
    place = torch.arange(threads) % 256
    for first in range(0, threads, 32):
        for turn in range(3):
            there = slice(first, first + 32)
            lanes = place[there] % 3 >= turn
            expected[there][lanes] = expected[there][lanes].sum() / 32 - x[there][lanes]
    assert torch.equal(run(tmp_path, UNEVEN, x, 256), expected)


def test_lanes_that_part_meet_again(tmp_path: Path) -> None:
    """Odd lanes add theirs, even ones take the largest of theirs; one has left before."""
    x = torch.arange(32.0)
    out = run(tmp_path, PARTED, x, 32)
    total = sum(range(1, 32, 2)) - 5.0
    expected = [total if lane % 2 == 0 else 30.0 for lane in range(32)]
    kept = [lane for lane in range(32) if lane not in (4, 5)]
    assert [out[lane].item() for lane in kept] == [expected[lane] - lane for lane in kept]
    assert out[5].item() == -1.0


def test_the_first_lane_of_those_that_ask(tmp_path: Path) -> None:
    """In each SIMD group: lane 0 of all, and lane 1 of those that took the other branch."""
    assert run(tmp_path, FIRST, torch.zeros(64), 64).tolist() == [1.0, 2.0, *[0.0] * 30] * 2


def test_a_tree_of_barriers_adds_all(tmp_path: Path) -> None:
    """The sum of a group, beside each thread's own number."""
    x = numbers(512)
    assert torch.equal(run(tmp_path, TREE, x, 256), x + x.view(2, 256).sum(1).repeat_interleave(256))


def test_what_a_lane_keeps_is_aligned(tmp_path: Path) -> None:
    """Also where its size is no multiple of its alignment."""
    x = torch.arange(256.0)
    assert torch.equal(run(tmp_path, FIVE, x, 256), x)


@pytest.mark.parametrize(
    "what", ["read or wrote memory that does not exist", "divided an integer by zero, or the smallest one by -1"]
)
def test_a_fault_names_its_thread(tmp_path: Path, what: str) -> None:
    """Of many that run side by side; kernels run on afterwards."""
    divides = what.startswith("divided")
    if divides and platform.machine() != "x86_64":
        pytest.skip("only x86 traps where an integer is divided by zero")
    x = torch.arange(192.0) + 1
    well = x.clone()
    x[74] = 0.0 if divides else x[74]
    with pytest.raises(RuntimeError) as raised:
        run(tmp_path, FAULTY.replace("GROUP", "3" if divides else "1"), x, 64)
    assert str(raised.value) == (
        f"anymps: the Metal kernel 'f' {what}, in the thread at (74, 0, 0) of the grid. On a Mac this is not caught, "
        "and the result is undefined"
    )
    out = run(tmp_path, FAULTY.replace("GROUP", "3"), well, 64)
    assert torch.equal(out, well)  # the number of a thread divided by the next one is 0


def test_threads_that_wait_at_too_many_places(tmp_path: Path) -> None:
    """A place is a byte: one line."""
    waits = "  call void @air.wg.barrier(i32 2, i32 1)\n" * 255
    with pytest.raises(AnympsError) as raised:
        run(tmp_path, f"{LOAD}{waits}  store float %x, ptr addrspace(1) %to\n  ret void", torch.ones(64), 64)
    assert str(raised.value) == "the threads of a compiled kernel wait at more places than can be told apart"
