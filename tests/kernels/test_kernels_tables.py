"""Kernels that take tables of addresses: how they are called, and how fused optimizers fill them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps.kernels.launches import Launch, Work
from described import find
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


def steps(operator: str, foreign: Sequence[str] = (), **given: Any) -> Work:
    """The work of a call; without launches where there is none."""
    return find(operator, foreign=foreign, **given) or Work((), ())


def chunks(launch: Launch) -> tuple[list[int], list[tuple[int, int]]]:
    """The sizes of a launch's tensors, and for each group of threads the tensor and the chunk that it takes."""
    which = launch.buffers[1]
    pairs = zip(which["threadgroup_to_tensor"], which["threadgroup_to_chunk"], strict=True)
    return which["numels"], list(pairs)


ADAM = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": True}
SCALER = {"grad_scale": None, "found_inf": None}


def adam(sizes: Sequence[int], dtype: torch.dtype = torch.float32, **more: object) -> dict[str, object]:
    """The arguments of a step over tensors of these sizes."""
    lists = {name: [torch.ones(size, dtype=dtype) for size in sizes] for name in ("self", "grads", "exp_avgs")}
    lists["exp_avg_sqs"] = lists["exp_avgs"]
    steps = [torch.ones(()) for _ in sizes]
    return {**lists, "max_exp_avg_sqs": [], "state_steps": steps, "lr": 0.5, **ADAM, **SCALER, **more}


def test_each_chunk_is_a_group_of_threads() -> None:
    """Empty tensors are left out; the numbers stand in the kernel's order, then the two tensors of a scaler."""
    (launch,) = steps("_fused_adam_", **adam([3, 0, 65_537], torch.float16)).launches
    assert (launch.kernel, launch.threads, launch.group) == ("fused_adam_half_float", (3 * 512,), (512,))
    assert chunks(launch) == ([3, 65_537], [(0, 0), (1, 0), (1, 1)])
    assert launch.buffers[2:] == (0.5, 0.9, 0.99, 0.0, 1e-8, 1.0, None, None)
    assert list(launch.buffers[0]) == ["params", "grads", "exp_avgs", "exp_avg_sqs", "state_steps"]
    assert {len(tensors) for tensors in launch.buffers[0].values()} == {2}


def test_a_launch_takes_32_tensors_and_32_chunks() -> None:
    """More tensors take another launch; a tensor that is not done goes on as the first of the next."""
    first, second = steps("_fused_adamw_", **adam([1] * 33)).launches
    assert (chunks(first), chunks(second)) == (([1] * 32, [(at, 0) for at in range(32)]), ([1], [(0, 0)]))
    long = 32 * 65_536 + 1
    first, second = steps("_fused_adamw_", **adam([2, long])).launches
    assert chunks(first) == ([2, long], [(0, 0), *((1, chunk) for chunk in range(31))])
    assert chunks(second) == ([long], [(0, 31), (0, 32)])
    assert second.buffers[0]["params"][0].numel() == long


def test_kernels_of_optimizers() -> None:
    """By momentum and by whether the largest second moment is kept; a rate on the CPU is read, one on mps is not."""
    given = adam([4], max_exp_avg_sqs=[torch.ones(4)], amsgrad=True, lr=torch.tensor(0.25))
    (launch,) = steps("_fused_adamw_", **given).launches
    assert launch.kernel == "fused_adamw_amsgrad_float_float"
    assert launch.buffers[2] is given["lr"]
    assert steps("_fused_adamw_", ["lr"], **given).launches[0].buffers[2] == 0.25
    lists = {"self": [torch.ones(4)], "grads": [torch.ones(4)], "momentum_buffer_list": []}
    numbers = {"weight_decay": 0.5, "momentum": 0.0, "lr": 0.1, "dampening": 0.0}
    flags = {"nesterov": False, "maximize": False, "is_first_step": False}
    (launch,) = steps("_fused_sgd_", **lists, **numbers, **flags, **SCALER).launches
    assert (launch.kernel, launch.buffers[2:]) == ("fused_sgd_float", (0.5, 0.1, 0.0, None, None))
    lists["momentum_buffer_list"] = [torch.ones(4)]
    (launch,) = steps("_fused_sgd_", **lists, **numbers, **flags, **SCALER).launches
    assert launch.kernel == "fused_sgd_momentum_float"
    assert launch.buffers[2:9] == (0.5, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0)


def test_steps_that_are_left_to_others() -> None:
    """No tensors, lists of other sizes, a rate or a scale of another type, a scale on the CPU, a later release."""
    assert not steps("_fused_adam_", **adam([])).launches
    assert not steps("_fused_adam_", **adam([0])).launches
    assert not steps("_fused_adam_", **adam([4], grads=[torch.ones(5)])).launches
    assert not steps("_fused_adam_", **adam([4], lr=torch.ones((), dtype=torch.float16))).launches
    assert not steps("_fused_adam_", **adam([4], found_inf=torch.ones((), dtype=torch.float16))).launches
    assert not steps("_fused_adam_", ["grad_scale"], **adam([4], grad_scale=torch.ones(()))).launches
    assert not steps("_fused_adam_", release=(2, 14), **adam([4])).launches


def test_scaling_of_gradients() -> None:
    """A launch for each tensor; the scale itself is changed by a single thread."""
    found, scale = torch.zeros(1), torch.ones(1)
    name = "_amp_foreach_non_finite_check_and_unscale_"
    tensors = [torch.ones(3, 4).t(), torch.ones(0), torch.ones(70_000)]
    first, second = steps(name, self=tensors, found_inf=found, inv_scale=scale).launches
    assert (first.kernel, first.threads) == ("ampNonFiniteCheckAndUnscale_float", (64,))
    assert (chunks(first), chunks(second)) == (([12], [(0, 0)]), ([70_000], [(0, 0), (0, 1)]))
    odd, other = torch.ones(4)[::2], torch.ones(5).half()
    launches = steps(name, self=[tensors[0], odd, other], found_inf=found, inv_scale=scale).launches
    assert [(one.kernel, one.threads) for one in launches] == [
        ("ampNonFiniteCheckAndUnscaleSingle_float", (2,)),
        ("ampNonFiniteCheckAndUnscaleSingle_half", (5,)),
        ("ampNonFiniteCheckAndUnscale_float", (64,)),
    ]
    assert len(steps(name, self=[odd], found_inf=found, inv_scale=scale).launches) == 1
    given = {"growth_tracker": torch.zeros(1, dtype=torch.int32), "found_inf": found, "growth_interval": 2}
    factors = {"scale_growth_factor": 2.0, "scale_backoff_factor": 0.5}
    work = steps("_amp_update_scale_", self=scale, **given, **factors)
    assert work.results == (scale,)
    assert (work.launches[0].kernel, work.launches[0].threads) == ("ampUpdateScale_float", (1,))
    given["found_inf"] = torch.zeros(2)[1:]
    assert not steps("_amp_update_scale_", self=scale, **given, **factors).launches
