"""Kernels that take tables of addresses: how they are called."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_files import bitcode, metallib

SUMS = """
target triple = "air64_v26-apple-macosx14.0.0"
%table = type { [2 x ptr addrspace(1)], [2 x ptr addrspace(1)] }

define void @sums(ptr addrspace(1) %t, ptr addrspace(1) %scale, i32 %i) {
begin:
  %none = icmp eq ptr addrspace(1) %scale, null
  br i1 %none, label %add, label %scaled
scaled:
  %s = load float, ptr addrspace(1) %scale
  br label %add
add:
  %factor = phi float [ 1.0, %begin ], [ %s, %scaled ]
  %k = zext i32 %i to i64
  %outp = getelementptr %table, ptr addrspace(1) %t, i64 0, i32 0, i64 %k
  %inp = getelementptr %table, ptr addrspace(1) %t, i64 0, i32 1, i64 %k
  %out = load ptr addrspace(1), ptr addrspace(1) %outp
  %in = load ptr addrspace(1), ptr addrspace(1) %inp
  %missing = icmp eq ptr addrspace(1) %out, null
  br i1 %missing, label %end, label %store
store:
  %x = load float, ptr addrspace(1) %in
  %y = fmul float %x, %factor
  store float %y, ptr addrspace(1) %out
  br label %end
end:
  ret void
}

!air.kernel = !{!0}
!0 = !{ptr @sums, !1, !2}
!1 = !{}
!2 = !{!3, !7, !8}
!3 = !{i32 0, !"air.indirect_buffer", !"air.buffer_size", i32 32, !"air.location_index", i32 0, i32 1, !"air.read",
 !"air.address_space", i32 1, !"air.struct_type_info", !4, !"air.arg_type_size", i32 32,
 !"air.arg_type_align_size", i32 8, !"air.arg_type_name", !"Table", !"air.arg_name", !"t"}
!4 = !{!"air.struct_type_info", !5, i32 0, i32 16, i32 0, !"metal::array", !"outs", !"air.indirect_argument", i32 0,
 !"air.struct_type_info", !5, i32 16, i32 16, i32 0, !"metal::array", !"ins", !"air.indirect_argument", i32 2}
!5 = !{i32 0, i32 8, i32 2, !"float", !"__elems", !"air.indirect_argument", i32 0}
!7 = !{i32 1, !"air.buffer", !"air.location_index", i32 1, i32 1, !"air.read", !"air.address_space", i32 1,
 !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float",
 !"air.arg_name", !"scale"}
!8 = !{i32 2, !"air.thread_position_in_grid", !"air.arg_type_name", !"uint", !"air.arg_name", !"i"}
"""
"""A kernel with *outs[i] = *ins[i] * scale, without a scale if there is none, for places that are not empty."""


@pytest.mark.usefixtures("virtual_device")
def test_a_table_is_a_dict_of_lists(tmp_path: Path) -> None:
    """A short list ends in no address; a buffer that is not given is not there; the launch holds its tensors."""
    from anymps.device import native
    from anymps.kernels import KernelLibrary, Metallib

    path = tmp_path / "kernels.metallib"
    path.write_bytes(metallib({"sums": bitcode(SUMS)}))
    kernel = KernelLibrary(Metallib(path), native()).sums
    x = torch.tensor([3.0, 4.0], device="mps")
    y, z = torch.zeros(2, device="mps"), torch.zeros(1, device="mps")
    kernel({"outs": [y[1:], z], "ins": [x, x[1:]]}, None, threads=2)
    assert (y.tolist(), z.tolist()) == ([0.0, 3.0], [4.0])
    kernel(t={"outs": [z], "ins": [x]}, scale=torch.tensor([2.0], device="mps"), threads=2)
    assert z.tolist() == [6.0]
    for table, text in (
        ({"outs": [z, z, z], "ins": []}, "Table.outs has room for 2 tensors, and 3 were given"),
        ({"outs": [1.0], "ins": []}, "Table.outs is a list of tensors"),
        ({"outs": [z]}, "Table needs the field ins: it has outs, ins"),
    ):
        with pytest.raises(TypeError) as caught:
            kernel(table, None, threads=2)
        assert str(caught.value) == text
    with pytest.raises(RuntimeError, match=r"^Passed CPU tensor to MPS op$"):
        kernel({"outs": [z], "ins": [torch.zeros(1)]}, None, threads=2)
