"""Compiled extensions launch Metal shaders by `aoti_torch_mps_*`: what they get, what is refused, what is recorded."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import anymps
from anymps.metal import take_shader_faults
from anymps.record import Fate
from metal.stable_extension import extension
from metal_shaders import HEAD

pytestmark = [
    pytest.mark.usefixtures("virtual_device", "no_faults_left"),
    pytest.mark.skipif(torch.__version__ < (2, 13), reason="the stable ABI hands on no texts of errors"),
]

ARGUMENTS = (
    HEAD
    + """
struct Body { float2 place; packed_float3 color; int kind; };
kernel void count(device float* out, uint i [[thread_position_in_grid]]) { out[i] += i; }
kernel void sized(device float* out, constant long& a, constant int64_t& b, uint i [[thread_position_in_grid]]) {
  out[i] = float(a >> 40) + float(b) + i;
}
kernel void scaled(device float* out, device const float* x, constant float& by, uint i [[thread_position_in_grid]]) {
  out[i] = x[i] * by;
}
kernel void negated(device float* out, constant bool& negative, uint i [[thread_position_in_grid]]) {
  out[i] = negative ? -float(i) : float(i);
}
kernel void placed(device float* out, constant Body& body, uint i [[thread_position_in_grid]]) {
  out[i] = body.place.y + body.color.z + body.kind + i;
}
kernel void places(device uint* out, uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_grid]],
                   uint3 l [[thread_position_in_threadgroup]], uint3 s [[threads_per_threadgroup]]) {
  const uint at = 2 * (p.x + n.x * (p.y + n.y * p.z));
  out[at] = l.x + 100 * l.y + 10000 * l.z;
  out[at + 1] = s.x + 2000 * s.y + 200000 * s.z;
}
"""
)
NONE = torch.zeros(0, dtype=torch.uint8)


def launch(kernel: str, tensors: list[torch.Tensor], *integers: int, **more: Any) -> None:
    """A launch by the extension, over the first tensor if nothing else is said."""
    data = torch.tensor(list(more.pop("data", b"")), dtype=torch.uint8)
    threads, group = more.pop("threads", [tensors[0].numel()]), more.pop("group", [])
    extension().launch(more.pop("source", ARGUMENTS), kernel, tensors, list(integers), data, threads, group)


def test_integers_are_64_bits() -> None:
    """`set_arg_int` of any value."""
    out = torch.zeros(5, device="mps")
    launch("sized", [out], 5 << 40, -3)
    assert out.tolist() == [2, 3, 4, 5, 6]


def test_tensors_lie_where_their_view_begins() -> None:
    """A view is not its storage."""
    out, x = torch.zeros(4, device="mps"), torch.arange(8.0, device="mps")[3:]
    launch("scaled", [out, x], data=struct.pack("f", -0.5))
    assert out.tolist() == [-1.5, -2, -2.5, -3]


@pytest.mark.parametrize(
    ("kernel", "data", "expected"),
    [
        ("negated", b"\1", [0, -1, -2, -3]),
        ("negated", b"\0", [0, 1, 2, 3]),
        ("placed", struct.pack("2f3fi", 1, 2, 3, 4, 5, 70), [77, 78, 79, 80]),
    ],
)
def test_bytes_are_what_the_kernel_takes_them_for(kernel: str, data: bytes, expected: list[float]) -> None:
    """`set_arg_bytes`: a truth value, a struct."""
    out = torch.zeros(4, device="mps")
    launch(kernel, [out], data=data)
    assert out.tolist() == expected


@pytest.mark.parametrize(
    ("threads", "group"),
    [
        ([2000], []),
        ([70], [32]),
        ([1100, 2], []),
        ([12, 5], [4, 4]),
        ([3, 2, 4], []),
        ([3, 4, 5], [2, 2, 2]),
        ([0], []),
    ],
)
def test_groups_are_those_of_compile_shader(threads: list[int], group: list[int]) -> None:
    """All four dispatches; with no group, the one that torch chooses on a Mac."""
    count = 2 * max(1, torch.Size(threads).numel())
    expected, out = (torch.zeros(count, dtype=torch.int32, device="mps") for _ in range(2))
    torch.mps.compile_shader(ARGUMENTS).places(expected, threads=threads, group_size=group or None)
    launch("places", [out], threads=threads, group=group)
    assert out.tolist() == expected.tolist()
    assert bool(out.any()) == (threads != [0])


def test_threads_without_python_launch_at_once() -> None:
    """Each has its own arguments of the one kernel."""
    out = torch.zeros(8, 5000, device="mps")
    extension().count_in_threads(out, 8)
    assert torch.equal(out.cpu(), torch.arange(5000.0).expand(8, 5000))


def test_buffers_of_the_interface() -> None:
    """Bytes go by two of them, which count among the memory of the device; the halves are exchanged."""
    out, numbers = torch.zeros(1000, device="mps"), torch.arange(1000.0)
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    extension().through_buffers(numbers, out)
    assert torch.equal(out.cpu(), numbers.roll(500))
    assert torch.accelerator.max_memory_allocated() - before >= 12_000
    assert torch.accelerator.memory_allocated() == before


FUNCTION = (
    "the handle of a kernel function was deleted, or never was one. On a Mac this is not caught, and the process may "
    "crash"
)
CRASHES = "is null. On a Mac the process crashes"
SIZE = (
    "size must be in (0, 4096], got {}. Metal setBytes only supports transient data up to 4 KB. Pass larger data as a "
    "tensor."
)
NOT_BEGUN = (
    "anymps: the Metal kernel 'count' was not begun by aoti_torch_mps_start_encoding. On a Mac the call has no effect, "
    "or the process crashes"
)
MISUSES = {
    "null function": f"anymps: the handle of a kernel function {CRASHES}",
    "null library": f"anymps: the handle of a shader library {CRASHES}",
    "null source": f"anymps: the source of a shader library {CRASHES}",
    "null callback": f"anymps: the callback of a command block {CRASHES}",
    "null tensor": "Tensor is null.",
    "tensor": "Passed CPU tensor to MPS op",
    "index": "anymps: the Metal kernel 'count' was given an argument 31, and Metal has the buffers 0 to 30. On a Mac "
    "this is not caught",
    "null bytes": "Pointer is null.",
    "many bytes": SIZE.format(4097),
    "no bytes": SIZE.format(0),
    "four dimensions": "Dispatch dimensions must be less than 3 and non-empty",
    "null lengths": "Dispatch dimensions must be less than 3 and non-empty",
    "another group": "size and group_size must have same number of dimensions",
    "large group": "Threadgroup size exceeds 1024 limit",
    "not begun": NOT_BEGUN,
    "begun in another block": NOT_BEGUN,
    "block in a block": "anymps: a command block begins inside of another one. On a Mac it would wait for itself, and "
    "the process ends",
    "deleted": f"anymps: {FUNCTION}",
    "deleted twice": f"anymps: {FUNCTION.replace('kernel function', 'shader library')}",
    "library as function": f"anymps: {FUNCTION}",
    "freed twice": "anymps: memory is freed that aoti_torch_mps_malloc did not give, or that is free. On a Mac this is "
    "not caught, and the process may crash",
    "copy past the end": "anymps: a copy of 8 bytes at byte 4 goes past the end of a buffer of 8 bytes. On a Mac this "
    "is not caught and touches other data",
    "null copy": f"anymps: the address of a buffer {CRASHES}",
    "free nothing": "",
    "callback throws": "of the callback",
}


@pytest.mark.parametrize("how", MISUSES)
def test_a_wrong_call_fails_with_a_text(how: str) -> None:
    """torch's words where it has any, and ours where a Mac goes on."""
    given = torch.zeros(4) if how == "tensor" else torch.zeros(4, device="mps")
    assert extension().misuse(how, given) == MISUSES[how]
    _forget_delayed()


def test_a_number_of_the_cpu_is_an_argument() -> None:
    """A tensor without dimensions, as for `compile_shader`."""
    assert extension().misuse("tensor", torch.tensor(1.0)) == ""


def _forget_delayed() -> None:
    """The code of some misuses is not looked at in the block: the next wait tells them again."""
    try:
        torch.mps.synchronize()
    except RuntimeError:
        return


def test_arguments_that_were_not_set() -> None:
    """As with `compile_shader`: the kernel finds no buffer there."""
    assert (
        extension()
        .misuse("nothing given", torch.zeros(4, device="mps"))
        .startswith("anymps: the Metal kernel 'count' read or wrote memory that does not exist")
    )
    _forget_delayed()


@pytest.mark.parametrize(
    ("source", "kernel", "text"),
    [
        ("kernel void f(device float* x) { x[0] = y; }", "f", "program_source:1:41: error: "),
        ("kernel void f(device float* x) { x[0] = 1; }", "g", "Failed to create function state object for: g"),
        (
            "kernel void f(device float* x, uint i [[thread_position_in_grid]]) { x[i + 1] = 1; }",
            "f",
            "anymps: the Metal kernel 'f' wrote 4 bytes past the end of argument 0, starting at byte 16 of 16.",
        ),
    ],
)
def test_an_error_reaches_python(source: str, kernel: str, text: str) -> None:
    """By torch's own macro: the words of `compile_shader`, and where the extension was."""
    with pytest.raises(RuntimeError) as raised:
        launch(kernel, [torch.zeros(4, device="mps")], source=source)
    assert text in str(raised.value)
    assert "API call failed at " in str(raised.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (ARGUMENTS.replace("out[i] += i", "out[i + 1] += i"), "wrote 4 bytes past the end of argument 0"),
        (ARGUMENTS.replace("void count", "void other"), "Failed to create function state object for: count"),
    ],
)
def test_an_error_at_which_nobody_looked_is_told_at_the_next_wait(source: str, text: str) -> None:
    """AOTInductor's code looks at no code of a launch."""
    out = torch.zeros(4, device="mps")
    extension().look_at_nothing(source, out)
    with pytest.raises(RuntimeError, match=text):
        torch.mps.synchronize()
    extension().look_at_nothing(ARGUMENTS, out.zero_())
    assert out.tolist() == [0, 1, 2, 3]


def test_a_launch_is_recorded(tmp_path: Path) -> None:
    """With its sizes, at the line of Python that called the extension."""
    out = torch.zeros(70, device="mps")
    with anymps.record(tmp_path / "run.anymps"):
        extension().launch(ARGUMENTS, "count", [out], [], NONE, [70], [])
        extension().launch(ARGUMENTS, "count", [out], [], NONE, [10, 7], [4, 4])
    with contextlib.closing(sqlite3.connect(tmp_path / "run.anymps")) as file:
        found = file.execute(
            "SELECT o.name, s.fate, s.inputs, t.source FROM entries e JOIN signatures s ON s.id = e.signature "
            "JOIN operators o ON o.id = s.operator JOIN sites t ON t.id = e.site"
        ).fetchall()
    assert [(name, fate, inputs, source.strip()) for name, fate, inputs, source in found] == [
        (f"metal::count.threads_{grid}", int(Fate.NATIVE), '["float32[70]"]', line)
        for grid, line in (
            ("70_group_70", 'extension().launch(ARGUMENTS, "count", [out], [], NONE, [70], [])'),
            ("10x7_group_4x4", 'extension().launch(ARGUMENTS, "count", [out], [], NONE, [10, 7], [4, 4])'),
        )
    ]


def test_faults_are_found_at_the_line_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check-shaders` checks them as any other."""
    from anymps.findings import find

    monkeypatch.setenv("ANYMPS_CHECK_SHADERS", "1")
    out = torch.zeros(4, device="mps")
    with anymps.record(tmp_path / "run.anymps") as capture:
        extension().launch(ARGUMENTS, "count", [out], [], NONE, [5], [])
    found = [finding for finding in find(capture.recording) if finding.id.startswith("MPS85")]
    assert [(finding.id, finding.site.source.strip()) for finding in found] == [
        ("MPS851", 'extension().launch(ARGUMENTS, "count", [out], [], NONE, [5], [])')
    ]
    take_shader_faults()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_sizes_in_boxes(mode: Any) -> None:
    """`torch::stable::empty` and `view`: with inference mode on, no kernel of autograd takes the sizes out before."""
    with mode():
        x = torch.arange(6.0).view(2, 3)
        assert extension().flat(x.to("mps")).cpu().tolist() == x.flatten().tolist()
