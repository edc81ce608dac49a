"""Metal libraries, Mach-O libraries and wheels, as small as they can be, written by the tests themselves."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

RELEASE = "2.13.0"

ADD = """
target datalayout = "e-p:64:64:64-i64:64:64-f32:32:32"
target triple = "air64_v26-apple-macosx14.0.0"

define void @add_dense_float_float(ptr addrspace(1) %out, ptr addrspace(2) %in, ptr addrspace(2) %by, i32 %i) {
  %k = zext i32 %i to i64
  %from = getelementptr inbounds float, ptr addrspace(2) %in, i64 %k
  %x = load float, ptr addrspace(2) %from, align 4
  %y = load float, ptr addrspace(2) %by, align 4
  %a = call float @air.fabs.f32(float %y)
  %s = fadd float %x, %a
  %to = getelementptr inbounds float, ptr addrspace(1) %out, i64 %k
  store float %s, ptr addrspace(1) %to, align 4
  ret void
}
declare float @air.fabs.f32(float)

!air.kernel = !{!0}
!0 = !{ptr @add_dense_float_float, !1, !2}
!1 = !{}
!2 = !{!3, !4, !5, !7}
!3 = !{i32 0, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read_write", !"air.address_space", i32 1,
 !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float",
 !"air.arg_name", !"out"}
!4 = !{i32 1, !"air.buffer", !"air.location_index", i32 1, i32 1, !"air.read", !"air.address_space", i32 2,
 !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"in"}
!5 = !{i32 2, !"air.buffer", !"air.buffer_size", i32 12, !"air.location_index", i32 2, i32 1, !"air.read",
 !"air.address_space", i32 2, !"air.struct_type_info", !6, !"air.arg_type_size", i32 12,
 !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"By", !"air.arg_name", !"by"}
!6 = !{i32 0, i32 4, i32 0, !"float", !"value", !"air.struct_type_info", !8, i32 4, i32 8, i32 0, !"metal::array",
 !"rest"}
!7 = !{i32 3, !"air.thread_position_in_grid", !"air.arg_type_name", !"uint", !"air.arg_name", !"i"}
!8 = !{i32 0, i32 4, i32 2, !"uint", !"__elems"}
"""
"""A kernel as the text of its module: out[i] = in[i] + |by.value|."""


def bitcode(text: str) -> bytes:
    """The bitcode of a module; the test is skipped where there is no llvmlite."""
    binding = pytest.importorskip(
        "llvmlite.binding", reason="llvmlite makes the bitcode (pip install 'llvmlite>=0.50,<0.51')"
    )
    return bytes(binding.parse_assembly(text).as_bitcode())


def metallib(modules: Mapping[str, bytes]) -> bytes:
    """A container with one kernel for each module."""
    entries, code = b"", b""
    for name, module in modules.items():
        padded = module + bytes(-len(module) % 16)
        blob = struct.pack("<5I", 0x0B17C0DE, 0, 20, len(module), 0xFFFFFFFF) + padded
        tags = b"".join(
            tag + struct.pack("<H", len(data)) + data
            for tag, data in (
                (b"NAME", name.encode() + b"\0"),
                (b"TYPE", b"\x02"),
                (b"HASH", hashlib.sha256(blob).digest()),
                (b"MDSZ", struct.pack("<Q", len(blob))),
                (b"OFFT", struct.pack("<3Q", 0, 0, len(code))),
                (b"VERS", struct.pack("<4H", 2, 6, 3, 1)),
            )
        )
        entries += struct.pack("<I", len(tags) + 8) + tags + b"ENDT"
        code += blob
    functions = struct.pack("<I", len(modules)) + entries + b"ENDT"
    after = 88 + len(functions)
    size = after + len(code)
    parts = (88, len(functions) - 4, after, 0, after, 0, after, len(code))
    return struct.pack("<4sHHHBBHHQ8Q", b"MTLB", 0x8001, 2, 7, 0, 0x81, 14, 0, size, *parts) + functions + code


def library(section: str, data: bytes) -> bytes:
    """A Mach-O library with one section."""
    size = 72 + 80
    offset = (32 + size + 63) // 64 * 64
    command = struct.pack("<2I16s4Q4I", 0x19, size, b"__TEXT", 0, 0, 0, 0, 5, 5, 1, 0)
    command += struct.pack("<16s16s2Q8I", section.encode(), b"__TEXT", 0, len(data), offset, 0, 0, 0, 0, 0, 0, 0)
    head = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 1, size, 0, 0) + command
    return head + bytes(offset - len(head)) + data


def wheel(path: Path, content: bytes | None, release: str = RELEASE) -> Path:
    """A wheel of torch that holds `content` as its library."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            f"torch-{release}.dist-info/METADATA", f"Metadata-Version: 2.4\nName: torch\nVersion: {release}\n"
        )
        if content is not None:
            archive.writestr("torch/lib/libtorch_cpu.dylib", content)
    return path


def module(
    name: str,
    buffers: Sequence[tuple[str, str, int]],
    positions: Sequence[tuple[str, str]],
    body: str,
    outside: str = "",
) -> str:
    """The text of a kernel's module. Buffers are (name, type, bytes of a single value; 0: an array), in order %name.

    Positions are (name, attribute), each an i32.
    """
    parameters = [f"ptr addrspace({2 if size else 1}) %{one}" for one, _, size in buffers]
    parameters += [f"i32 %{one}" for one, _ in positions]
    nodes = []
    for slot, (one, type_, size) in enumerate(buffers):
        single = f'!"air.buffer_size", i32 {size}, ' if size else ""
        space, access = (2, "read") if size else (1, "read_write")
        nodes.append(
            f'!{{i32 {slot}, !"air.buffer", {single}!"air.location_index", i32 {slot}, i32 1, !"air.{access}", '
            f'!"air.address_space", i32 {space}, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, '
            f'!"air.arg_type_name", !"{type_}", !"air.arg_name", !"{one}"}}'
        )
    for at, (one, attribute) in enumerate(positions, len(buffers)):
        nodes.append(f'!{{i32 {at}, !"air.{attribute}", !"air.arg_type_name", !"uint", !"air.arg_name", !"{one}"}}')
    listed = ", ".join(f"!{at}" for at in range(3, 3 + len(nodes)))
    metadata = "\n".join(f"!{at} = {node}" for at, node in enumerate(nodes, 3))
    return (
        f'target triple = "air64_v26-apple-macosx14.0.0"\n{outside}\n'
        f"define void @{name}({', '.join(parameters)}) {{\n{body}\n}}\n"
        f"!air.kernel = !{{!0}}\n!0 = !{{ptr @{name}, !1, !2}}\n!1 = !{{}}\n!2 = !{{{listed}}}\n{metadata}\n"
    )


def elementwise(name: str, operation: str, place: str = "%k") -> str:
    """A kernel with out[i] = a[i] `operation` b[i], or b[0] with 0 as `place`."""
    return module(
        name,
        [("out", "float", 0), ("a", "float", 0), ("b", "float", 0)],
        [("i", "thread_position_in_grid")],
        f"""
      %k = zext i32 %i to i64
      %pa = getelementptr float, ptr addrspace(1) %a, i64 %k
      %pb = getelementptr float, ptr addrspace(1) %b, i64 {place}
      %x = load float, ptr addrspace(1) %pa
      %y = load float, ptr addrspace(1) %pb
      %z = {operation} float %x, %y
      %to = getelementptr float, ptr addrspace(1) %out, i64 %k
      store float %z, ptr addrspace(1) %to
      ret void""",
    )


def add_to_cache(folder: Path, texts: Mapping[str, str], *releases: str) -> dict[str, str]:
    """The environment of a program with a cache in `folder`, which holds these kernels for each release."""
    (folder / "kernels").mkdir(mode=0o755, exist_ok=True)
    library = metallib({name: bitcode(text) for name, text in texts.items()})
    for release in releases:
        (folder / "kernels" / f"torch-{release}.metallib").write_bytes(library)
    return {"ANYMPS_CACHE_DIR": str(folder)}


def has_kernels(release: str, *, installed: str = "") -> bool:
    """Whether the kernels of a release have been added, and the installed torch is this one."""
    from anymps.kernels import added_releases
    from anymps.rules import installed_torch

    return release in added_releases() and str(installed_torch().version).startswith(installed)


def needs_kernels(release: str, *, installed: str = "") -> None:
    """Skips the test where there are none such."""
    if not has_kernels(release, installed=installed):
        pytest.skip(f"the Metal kernels of torch {release} have not been added, or another torch is installed")
    pytest.importorskip("llvmlite", reason="needs the extra kernels")
