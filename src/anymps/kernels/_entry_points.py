"""How the runtime enters a compiled kernel: as loops over a box of the grid, or thread by thread.

The layout of what the runtime gives is that of shim/msl/runtime.h. Subnormal floats are zero while a kernel runs, as
the kernels were compiled for (`air.compile.denorms_disable`): a loop sees to it, and for threads the runtime.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence

from anymps._errors import KernelsError
from anymps.kernels._intrinsics import lanes
from anymps.kernels._metadata import BufferArgument, PositionArgument, Signature

_COPIED = 4096  # bytes; constants up to this size are copied, so that no store can change them

_ARM = platform.machine() in ("aarch64", "arm64")
_FLUSH = (
    "  call void @llvm.aarch64.set.fpcr(i64 16777216)\n"  # FZ
    if _ARM
    else "  call void @llvm.x86.sse.ldmxcsr(ptr @anymps_flushing)\n"
)
_SAVE = (
    "  %before = call i64 @llvm.aarch64.get.fpcr()\n"
    if _ARM
    else "  %before = alloca i32\n  call void @llvm.x86.sse.stmxcsr(ptr %before)\n"
)
_RESTORE = (
    "  call void @llvm.aarch64.set.fpcr(i64 %before)\n" if _ARM else "  call void @llvm.x86.sse.ldmxcsr(ptr %before)\n"
)
# FTZ and DAZ; all exceptions masked.
_CONSTANTS = "" if _ARM else "@anymps_flushing = private constant i32 40896\n"

_DECLARED = """declare void @anymps_rt_barrier(i32) convergent nounwind
declare void @anymps_rt_simd(ptr, ptr, i64) convergent nounwind
declare i32 @anymps_rt_lane() nounwind
declare i32 @anymps_rt_thread() nounwind memory(none)
declare ptr @anymps_rt_shared() nounwind memory(none)
declare float @anymps_k_sinpi(float) nounwind memory(none)
declare i32 @anymps_k_nextafter_32(i32, i32) nounwind memory(none)
declare i16 @anymps_k_nextafter_16(i16, i16) nounwind memory(none)
"""


def preamble(resolves: Sequence[str]) -> str:
    """What is outside of a module: the runtime, the support library and constants."""
    return _CONSTANTS + _DECLARED + "".join(f"declare void @{name}(ptr, i32)\n" for name in resolves)


def entries(signature: Signature, types: Sequence[str], key: str, together: bool) -> str:
    """The function that the runtime calls: `anymps_plain_<key>`, or `anymps_begin_<key>` if threads work together.

    `types` are those of the kernel's parameters. Raises KernelsError for a position that is not known.
    """
    if len(types) != len(signature.parameters):
        raise KernelsError(f"the kernel {signature.function} has {len(types)} parameters, and describes another number")
    return _thread(signature, types, key) if together else _plain(signature, types, key)


def _buffers(signature: Signature, launch: str, copies: bool = True) -> tuple[str, dict[int, str]]:
    """Loads the address of each buffer; gives the operand of each parameter by its index."""
    lines, operands = [f"  %buffers = load ptr, ptr {launch}\n"], {}
    for at, one in enumerate(signature.parameters):
        if not isinstance(one, BufferArgument):
            continue
        if one.space == "threadgroup":
            raise KernelsError(f"the kernel {signature.function} takes threadgroup memory as a parameter")
        lines.append(f"  %slot{at} = getelementptr ptr, ptr %buffers, i32 {one.slot}\n")
        lines.append(f"  %buffer{at} = load ptr, ptr %slot{at}\n")
        operands[at] = f"ptr %buffer{at}"
        if copies and one.space == "constant" and one.size is not None and one.size <= _COPIED:
            lines.append(f"  %copy{at} = alloca [{one.size} x i8], align 16\n")
            lines.append(
                f"  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %copy{at}, ptr %buffer{at}, i64 {one.size}, i1 0)\n"
            )
            operands[at] = f"ptr %copy{at}"
    return "".join(lines), operands


def _triple(name: str, base: str, offset: int) -> str:
    lines = []
    for axis in range(3):
        lines.append(f"  %{name}p{axis} = getelementptr i8, ptr {base}, i32 {offset + 4 * axis}\n")
        lines.append(f"  %{name}{axis} = load i32, ptr %{name}p{axis}\n")
    return "".join(lines)


_SIZES = _triple("grid", "%launch", 8) + _triple("group", "%launch", 20) + _triple("groups", "%launch", 32)
"""Those of the grid and of a whole group, and how many groups there are."""


def _positions(signature: Signature, types: Sequence[str], operands: dict[int, str]) -> str:
    """Brings %attribute0 to 2 into the type of each parameter, and adds them to the operands."""
    lines = []
    for at, one in enumerate(signature.parameters):
        if not isinstance(one, PositionArgument):
            continue
        source = _SOURCES.get(one.attribute)
        if source is None:
            raise KernelsError(f"the kernel {signature.function} asks for {one.attribute}, which is not known here")
        count, element = lanes(types[at])
        if not re.fullmatch(r"i(16|32)", element):
            raise KernelsError(f"the kernel {signature.function} asks for {one.attribute} as {types[at]}")
        value = "poison"
        for axis in range(max(count, 1)):
            part = source[axis] if axis < len(source) else "0"
            if element == "i16":
                lines.append(f"  %n{at}_{axis} = trunc i32 {part} to i16\n")
                part = f"%n{at}_{axis}"
            if count:
                lines.append(f"  %v{at}_{axis} = insertelement {types[at]} {value}, {element} {part}, i32 {axis}\n")
                value = f"%v{at}_{axis}"
            else:
                value = part
        operands[at] = f"{types[at]} {value}"
    return "".join(lines)


def _axes(name: str) -> tuple[str, ...]:
    return tuple(f"%{name}{axis}" for axis in range(3))


_SOURCES: dict[str, tuple[str, ...]] = {
    "thread_position_in_grid": _axes("position"),
    "thread_position_in_threadgroup": _axes("local"),
    "threadgroup_position_in_grid": _axes("place"),
    "threads_per_threadgroup": _axes("size"),
    "threads_per_grid": _axes("grid"),
    "threadgroups_per_grid": _axes("groups"),
    "thread_index_in_threadgroup": ("%index",),
    "thread_index_in_simdgroup": ("%lane",),
    "simdgroup_index_in_threadgroup": ("%simdgroup",),
    "simdgroups_per_threadgroup": ("%simdgroups",),
    "threads_per_simdgroup": ("32",),
}

_INDEX = """  %lane = and i32 %index, 31
  %simdgroup = lshr i32 %index, 5
  %s01 = mul i32 %size0, %size1
  %threads = mul i32 %s01, %size2
  %up = add i32 %threads, 31
  %simdgroups = lshr i32 %up, 5
"""


def _of_box() -> str:
    """The positions of a thread that is known by its place in the grid."""
    return "".join(
        f"  %local{axis} = urem i32 %position{axis}, %group{axis}\n"
        f"  %place{axis} = udiv i32 %position{axis}, %group{axis}\n"
        f"  %first{axis} = mul i32 %place{axis}, %group{axis}\n"
        f"  %left{axis} = sub i32 %grid{axis}, %first{axis}\n"
        f"  %size{axis} = call i32 @llvm.umin.i32(i32 %left{axis}, i32 %group{axis})\n"
        for axis in range(3)
    ) + (
        "  %plane = mul i32 %local2, %size1\n  %rows = add i32 %plane, %local1\n  %row = mul i32 %rows, %size0\n"
        "  %index = add i32 %row, %local0\n"
    )


def _plain(signature: Signature, types: Sequence[str], key: str) -> str:
    load, operands = _buffers(signature, "%launch")
    convert = _positions(signature, types, operands)
    arguments = ", ".join(operands[at] for at in range(len(types)))
    box = _triple("from", "%box", 0) + _triple("to", "%box", 12)
    return f"""
define internal void @anymps_box(ptr noalias %launch, ptr noalias %box) noinline nounwind {{
begin:
{load}{_SIZES}{box}  br label %planes
planes:
  %position2 = phi i32 [ %from2, %begin ], [ %next2, %plane_done ]
  br label %lines
lines:
  %position1 = phi i32 [ %from1, %planes ], [ %next1, %line_done ]
  br label %threads_of_a_line
threads_of_a_line:
  %position0 = phi i32 [ %from0, %lines ], [ %next0, %threads_of_a_line ]
{_of_box()}{_INDEX}{convert}  call void @{_quoted(signature.function)}({arguments})
  %next0 = add nuw i32 %position0, 1
  %more0 = icmp ult i32 %next0, %to0
  br i1 %more0, label %threads_of_a_line, label %line_done
line_done:
  %next1 = add nuw i32 %position1, 1
  %more1 = icmp ult i32 %next1, %to1
  br i1 %more1, label %lines, label %plane_done
plane_done:
  %next2 = add nuw i32 %position2, 1
  %more2 = icmp ult i32 %next2, %to2
  br i1 %more2, label %planes, label %done
done:
  ret void
}}
define void @anymps_plain_{key}(ptr %launch, ptr %box) nounwind {{
{_SAVE}{_FLUSH}  call void @anymps_box(ptr %launch, ptr %box)
{_RESTORE}  ret void
}}
"""


def _thread(signature: Signature, types: Sequence[str], key: str) -> str:
    load, operands = _buffers(signature, "%launch", copies=False)
    convert = _positions(signature, types, operands)
    arguments = ", ".join(operands[at] for at in range(len(types)))
    place = _triple("place", "%of", 8) + _triple("size", "%of", 20) + _triple("local", "%thread", 16)
    position = "".join(
        f"  %first{axis} = mul i32 %place{axis}, %group{axis}\n  %position{axis} = add i32 %first{axis}, %local{axis}\n"
        for axis in range(3)
    )
    return f"""
define void @anymps_begin_{key}(ptr %thread, ptr %launch, ptr %of) nounwind convergent {{
  %index = call i32 @anymps_rt_thread()
{load}{_SIZES}{place}{position}{_INDEX}{convert}  call void @{_quoted(signature.function)}({arguments})
  ret void
}}
"""


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.$-]+", name) else f'"{name}"'
