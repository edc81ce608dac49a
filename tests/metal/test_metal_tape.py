"""Launches of Metal kernels in recordings, plans and late errors."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
import torch

import anymps
from anymps.record import Fate
from metal_shaders import BASICS, library
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")

REPORTING = """
#include <c10/metal/error.h>
kernel void check(device float* x, constant long& limit, device c10::metal::ErrorMessages* errors,
                  uint i [[thread_position_in_grid]]) {
  if (i >= limit) {
    TORCH_REPORT_ERROR(errors, "Index ", i, " exceeds limit ", limit);
    return;
  }
  x[i] = i;
}
"""


def test_a_launch_is_an_entry_with_kernel_grid_and_line(tmp_path: Path) -> None:
    """One for each call, native on mps, at the line that called; what a kernel computes is the same."""
    x, y = torch.ones(100, device="mps"), torch.zeros(100, device="mps")
    kernels = library(BASICS)
    with anymps.record(tmp_path / "run.anymps"):
        kernels.saxpy(y, x, 2.0)
        kernels.saxpy(y, x, 1.0, threads=(10, 5), group_size=(8, 4))
    assert y.tolist() == [7.0] * 10 + [2.0] * 90
    with contextlib.closing(sqlite3.connect(tmp_path / "run.anymps")) as file:
        found = file.execute(
            "SELECT o.name, s.fate, s.inputs, t.source FROM entries e JOIN signatures s ON s.id = e.signature "
            "JOIN operators o ON o.id = s.operator JOIN sites t ON t.id = e.site WHERE o.name LIKE 'metal::%'"
        ).fetchall()
    given = '["float32[100]", "float32[100]"]'
    assert [(name, fate, inputs, source.strip()) for name, fate, inputs, source in found] == [
        ("metal::saxpy.threads_100_group_100", int(Fate.NATIVE), given, "kernels.saxpy(y, x, 2.0)"),
        (
            "metal::saxpy.threads_10x5_group_8x4",
            int(Fate.NATIVE),
            given,
            "kernels.saxpy(y, x, 1.0, threads=(10, 5), group_size=(8, 4))",
        ),
    ]


def test_a_fault_under_a_recording_is_the_same_error(tmp_path: Path) -> None:
    """The operator around the launch changes nothing."""
    with anymps.record(tmp_path / "run.anymps"), pytest.raises(RuntimeError) as raised:
        library(BASICS).saxpy(torch.zeros(3, device="mps"), threads=3)
    assert str(raised.value) == (
        "anymps: the Metal kernel 'saxpy' read or wrote memory that does not exist, in the thread at (0, 0, 0) of the "
        "grid: it has 2 more buffers than the call gave it. On a Mac this is not caught, and the result is undefined"
    )


def test_the_error_buffer_is_raised_at_the_next_wait() -> None:
    """As torch.AcceleratorError, with the first message; the kernel's other threads have written."""
    kernel = library(REPORTING).check
    x = torch.zeros(6, device="mps")
    kernel(x, 6, error_buf_idx=2)
    torch.mps.synchronize()
    x.zero_()
    kernel(x, 5, error_buf_idx=2)
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.mps.synchronize()
    assert str(raised.value).splitlines()[0] == "Index 5 exceeds limit 5"
    assert x.tolist() == [0, 1, 2, 3, 4, 0]


def test_leaves_that_need_gradients_can_be_written() -> None:
    """A launch is nothing to autograd, recorded or not."""
    x = torch.zeros(3, device="mps", requires_grad=True)
    with anymps.record():
        library(BASICS).count_float(x)
    assert x.tolist() == [0, 1, 2]


def test_nothing_is_computed_without_values() -> None:
    """On the substrate of plans a launch runs no kernel, and is on the tape."""
    code = (
        "import anymps, torch\nanymps.enable(quiet=True, substrate='shape')\n"
        "library = torch.mps.compile_shader('kernel void f(device float* x) { *(device int*)0 = 1; }')\n"
        "x = torch.zeros(1 << 24, device='mps')\nx = x.sin()\nlibrary.f(x)\nprint(x.shape)\n"
    )
    result = run_with_torch(code)
    assert (result.status, result.out) == (0, "torch.Size([16777216])\n"), result.err


@pytest.mark.parametrize("recorded", [False, True])
def test_a_launch_that_is_traced_is_refused_in_torch_s_words(tmp_path: Path, recorded: bool) -> None:
    """In the backward of an operator, which a compiler traces: the launch belongs into an operator of its own."""
    kernels = library(BASICS)

    def backward(_: object, gradient: torch.Tensor) -> torch.Tensor:
        result = torch.empty_like(gradient)
        kernels.saxpy(result, gradient, 2.0)
        return result

    with torch.library._scoped_library("anymps_traced", "DEF") as mine:
        mine.define("twice(Tensor x) -> Tensor")
        for key in ("CPU", "MPS", "Meta"):
            mine.impl("twice", lambda x: x * 2, key)
        torch.library.register_autograd("anymps_traced::twice", backward, lib=mine)
        compiled = torch.compile(lambda x: torch.ops.anymps_traced.twice(x).sum(), backend="aot_eager")
        recording = anymps.record(tmp_path / "run.anymps") if recorded else contextlib.nullcontext()
        with recording, pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
            compiled(torch.ones(4, device="mps", requires_grad=True))
    assert "please wrap the custom kernel into an opaque custom op" in str(raised.value)
    assert str(raised.value.inner_exception).startswith("Cannot access data pointer of Tensor (e.g. FakeTensor")
