"""What goes wrong with Metal shaders: source that does not compile, features that are not there, kernels that fault."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
import torch

import anymps
from metal.forms import error_of
from metal_shaders import HEAD, library
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")

FAR = -(1 << 40)  # below every buffer, and an address that could exist; above them, from some heaps, it could not

FAULTY = (
    HEAD
    + """
kernel void beyond(device float* x, constant long& by, uint i [[thread_position_in_grid]]) {
  x[i + by] = 1.0;
}
kernel void beyond_in_group(device float* x, constant long& by, uint i [[thread_position_in_grid]]) {
  for (uint n = 0; n < 2 + i / 4096; ++n) threadgroup_barrier(mem_flags::mem_none);  // of each thread its own: fibers
  if (i == 35) x[i + by] = 1.0;
}
kernel void divides(device int* x, constant int& by, uint i [[thread_position_in_grid]]) {
  for (uint n = 0; n < 2 + i / 4096; ++n) threadgroup_barrier(mem_flags::mem_none);  // of each thread its own: fibers
  x[i] = x[i] / by;
}
kernel void endless(device atomic_int* x) {
  while (atomic_load_explicit(x, memory_order_relaxed) == 0) {
  }
}
"""
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "kernel void f(device float* x) {\n  x[0] = yy + 1.0;\n}\n",
            "program_source:2:10: error: 'yy' was not declared in this scope\n  x[0] = yy + 1.0;\n         ^\n",
        ),
        (  # behind what was rewritten: literals, a swizzle
            "kernel void f(device float4* x) {\n  x[0].xy = 2.0 * x[1].zw + 0.5 * yy;\n}\n",
            "program_source:2:35: error: 'yy' was not declared in this scope\n"
            "  x[0].xy = 2.0 * x[1].zw + 0.5 * yy;\n                                  ^\n",
        ),
        ("Syntax error", "program_source:1:1: error: 'Syntax' does not name a type\nSyntax error\n^\n"),
        (
            '#include "mine.h"\nkernel void f() {}\n',
            'program_source:1:10: error: mine.h: No such file or directory\n#include "mine.h"\n         ^\n',
        ),
    ],
)
def test_source_that_does_not_compile(source: str, expected: str) -> None:
    """SyntaxError in the form of Metal's compiler, at the user's line and column."""
    with pytest.raises(SyntaxError) as raised:
        torch.mps.compile_shader(source)
    if (
        "g++" in sys.modules["anymps.metal.compilation._compiler"].find_compiler().identity
    ):  # the words are the compiler's
        assert str(raised.value) == expected
    assert str(raised.value).startswith(expected.split("error:")[0])


def test_what_is_not_there_is_named() -> None:
    """One sentence."""
    assert error_of(torch.mps.compile_shader, "#include <metal_tensor>\nkernel void f(metal::tensor_handle t) {}") == (
        "anymps: Metal 4 tensor operations (program_source:2) cannot be used on the virtual mps device"
    )


def test_a_kernel_that_cannot_be_called_leaves_the_others() -> None:
    """It is refused when it is asked for."""
    shader = torch.mps.compile_shader(
        "kernel void one(device float* x) { x[0] = 1; }\n"
        "kernel void f(device float* y, threadgroup float* x [[threadgroup(0)]]) { x[0] = y[0]; }"
    )
    x = torch.zeros(1, device="mps")
    shader.one(x)
    assert (x.item(), dir(shader)) == (1, ["f", "one"])
    assert error_of(getattr, shader, "f") == (
        "anymps: threadgroup memory as a parameter, whose size torch.mps.compile_shader cannot set (program_source:2) "
        "cannot be used on the virtual mps device"
    )


@pytest.mark.parametrize(
    ("space", "named", "expected"),
    [
        ("constant", "1:13", "number of constant buffers exceeds maximum supported (31)"),
        ("device", "1:640", "no 'buffer' resource location available for 'data31'"),
    ],
)
def test_too_many_buffers(space: str, named: str, expected: str) -> None:
    """Metal has 31 for a kernel. Its compiler refuses one more, at the kernel's name or at the parameter."""

    def taking(count: int) -> str:
        return f"kernel void many({', '.join(f'{space} int* data{n}' for n in range(count))}) {{}}"

    assert dir(torch.mps.compile_shader(taking(31))) == ["many"]
    with pytest.raises(SyntaxError) as raised:
        torch.mps.compile_shader(taking(32))
    assert str(raised.value).splitlines()[0] == f"program_source:{named}: error: {expected}"


def test_too_much_threadgroup_memory() -> None:
    """What a Mac says when it makes the pipeline."""
    shader = torch.mps.compile_shader(
        "kernel void f(device int* x) { threadgroup int a[8193]; a[0] = x[0]; x[0] = a[0]; }"
    )
    assert error_of(getattr, shader, "f") == (
        "Failed to created pipeline state object, error: "
        "Threadgroup memory size (32784) exceeds the maximum threadgroup memory allowed (32768)"
    )


AFTER = ". On a Mac this is not caught, and the result is undefined"


def test_bad_access_ends_the_kernel_and_not_the_process() -> None:
    """In a loop and in a fiber; kernels run on afterwards."""
    x = torch.zeros(64, device="mps")
    assert error_of(library(FAULTY).beyond, x, FAR) == (
        "anymps: the Metal kernel 'beyond' read or wrote memory that does not exist, "
        "in the thread at (0, 0, 0) of the grid" + AFTER
    )
    assert error_of(library(FAULTY).beyond_in_group, x, FAR) == (
        "anymps: the Metal kernel 'beyond_in_group' read or wrote memory that does not exist, "
        "in the thread at (35, 0, 0) of the grid" + AFTER
    )
    with pytest.raises(RuntimeError) as raised:
        library(FAULTY).beyond(x, 1 << 59)  # the processor names no such address
    misaligned = ", or that is misaligned for its vector" if platform.machine() == "x86_64" else ""
    assert str(raised.value) == (
        f"anymps: the Metal kernel 'beyond' read or wrote memory that does not exist{misaligned}, "
        "in the thread at (0, 0, 0) of the grid" + AFTER
    )
    assert error_of(library(FAULTY).beyond, x) == (
        "anymps: the Metal kernel 'beyond' read or wrote memory that does not exist, "
        "in the thread at (0, 0, 0) of the grid: it has 1 more buffer than the call gave it" + AFTER
    )
    library(FAULTY).beyond_in_group(x, 0)
    assert x.sum().item() == 1


ALONE = (
    HEAD
    + """
kernel void gathers(device float* x, device const long* at, uint3 i [[thread_position_in_grid]],
                    uint3 n [[threads_per_grid]]) {
  uint k = (i.z * n.y + i.y) * n.x + i.x;
  x[k] = x[at[k]] + 1.0;
}
kernel void shares(device int* x, device const int* by, uint3 i [[thread_position_in_grid]],
                   uint3 n [[threads_per_grid]]) {
  uint k = (i.z * n.y + i.y) * n.x + i.x;
  x[k] = 6 / by[k];
}
kernel void clears(device float* x, device long* at, uint i [[thread_position_in_grid]]) {
  long k = at[i];
  at[i] = 0;
  x[k] = 1.0;
}
"""
)


@pytest.mark.parametrize("shape", [(40000, 1, 1), (200, 90, 1), (5, 7, 11), (3000, 1, 4)])
@pytest.mark.parametrize("share", [0.0, 0.37, 0.999])
def test_a_fault_in_a_loop_over_the_grid_names_its_thread(shape: tuple[int, int, int], share: float) -> None:
    """Wherever the grid is cut, and though the loop runs several threads at a time."""
    width, height, depth = shape
    count = width * height * depth
    bad = int(share * count)
    where = f"in the thread at ({bad % width}, {bad // width % height}, {bad // width // height}) of the grid"
    places = torch.zeros(count, dtype=torch.int64)
    places[bad] = FAR
    assert error_of(library(ALONE).gathers, torch.zeros(count, device="mps"), places.to("mps"), threads=shape) == (
        f"anymps: the Metal kernel 'gathers' read or wrote memory that does not exist, {where}" + AFTER
    )
    if platform.machine() != "x86_64":
        return  # only x86 traps where an integer is divided by zero
    by = torch.ones(count, dtype=torch.int32)
    by[bad] = 0
    with pytest.raises(RuntimeError) as raised:
        library(ALONE).shares(torch.zeros(count, dtype=torch.int32, device="mps"), by.to("mps"), threads=shape)
    what = "divided an integer by zero, or the smallest one by -1"
    assert str(raised.value) == f"anymps: the Metal kernel 'shares' {what}, {where}" + AFTER


def test_a_fault_in_a_group_that_runs_as_one_names_the_group() -> None:
    """Its threads meet at the top of the body, so a piece of it is a loop over all of them."""
    source = HEAD + (
        "kernel void reads(device float* x, device const long* at, uint2 i [[thread_position_in_grid]],\n"
        "                  uint2 n [[threads_per_grid]]) {\n"
        "  float value = x[at[i.y * n.x + i.x]];\n"
        "  threadgroup_barrier(mem_flags::mem_none);\n"
        "  x[i.y * n.x + i.x] = simd_sum(value);\n"
        "}\n"
    )
    places = torch.zeros(48, 96, dtype=torch.int64)
    places[37, 70] = FAR
    with pytest.raises(RuntimeError) as raised:
        library(source).reads(
            torch.zeros(48 * 96, device="mps"), places.to("mps"), threads=(96, 48), group_size=(32, 8)
        )
    assert str(raised.value) == (
        "anymps: the Metal kernel 'reads' read or wrote memory that does not exist, in the threadgroup at (2, 4, 0)"
        + AFTER
    )


def test_a_fault_that_does_not_come_again_names_no_thread() -> None:
    """The thread has overwritten what led it astray."""
    places = torch.zeros(100, dtype=torch.int64)
    places[41] = FAR
    assert error_of(library(ALONE).clears, torch.zeros(100, device="mps"), places.to("mps")) == (
        "anymps: the Metal kernel 'clears' read or wrote memory that does not exist" + AFTER
    )


def test_division_by_zero_ends_the_kernel_and_not_the_process() -> None:
    """x86 traps there."""
    x = torch.ones(64, dtype=torch.int32, device="mps")
    assert error_of(library(FAULTY).divides, x, 0) == (
        "anymps: the Metal kernel 'divides' divided an integer by zero, or the smallest one by -1, "
        "in the thread at (0, 0, 0) of the grid" + AFTER
    )


def test_a_handler_of_the_program_is_asked() -> None:
    """One that it sets between two launches hears a Ctrl-C, within a kernel and outside of one."""
    code = (
        "import anymps, os, signal, threading, torch\nanymps.enable(quiet=True)\n"
        f"library = torch.mps.compile_shader({FAULTY!r})\n"
        "x = torch.zeros(1, dtype=torch.int32, device='mps')\nheard = []\n"
        "library.divides(x, 1)\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(len(heard)))\n"
        "over = threading.Event()\n"
        "def press():\n    while not over.wait(0.5):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "presses = threading.Thread(target=press)\npresses.start()\n"
        "try:\n    library.endless(x, threads=64, group_size=32)\n"
        "except KeyboardInterrupt:\n    over.set()\n    presses.join()\n    print('interrupted', len(heard) > 0)\n"
        "heard.clear()\nos.kill(os.getpid(), signal.SIGINT)\nlibrary.divides(x, 1)\nprint(heard)\n"
    )
    answer = run_with_torch(code)
    assert (answer.out, answer.err) == ("interrupted True\n[0]\n", "")


def test_an_endless_kernel_is_stopped_after_the_limit() -> None:
    """In a loop over the grid and in fibers, on two threads; the process goes on. A limit that is no number."""
    script = (
        "import torch, anymps\nanymps.enable(quiet=True)\ntorch.set_num_threads(2)\n"
        "source = 'kernel void endless(device float* x, uint i [[thread_position_in_grid]]) { while (x[i] == 0) {} }'\n"
        "source += 'kernel void together(device float* x, uint i [[thread_position_in_grid]]) {'\n"
        "source += ' while (x[0] == 0) simdgroup_barrier(metal::mem_flags::mem_none); }'\n"
        "source = source.replace('device', 'volatile device')\n"
        "library = torch.mps.compile_shader(source)\nx = torch.zeros(100000, device='mps')\n"
        "for name in ('endless', 'together'):\n"
        "    try:\n        getattr(library, name)(x, group_size=32)\n"
        "    except RuntimeError as error:\n        print(error)\n"
        "x += 1\nlibrary.endless(x)\nprint(x.sum().item())\n"
    )
    answer = run(script, {"ANYMPS_SHADER_SECONDS": "0.3"})
    after = (
        "ran for more than 0.3 s and was stopped. A Mac stops one after some seconds and continues with wrong numbers. "
        "ANYMPS_SHADER_SECONDS sets another limit"
    )
    assert answer.splitlines() == [
        f"anymps: the Metal kernel 'endless' {after}",
        f"anymps: the Metal kernel 'together' {after}",
        "100000.0",
    ]
    wrong = "import torch, anymps\nanymps.enable(quiet=True)\ntry:\n    torch.mps.compile_shader('')\n"
    wrong += "except Exception as error:\n    print(type(error).__name__, error)\n"
    assert run(wrong, {"ANYMPS_SHADER_SECONDS": "soon"}) == (
        "UsageError ANYMPS_SHADER_SECONDS=soon is not a number of seconds: name one, or 0 for no limit\n"
    )


def run(script: str, variables: dict[str, str]) -> str:
    """What a process prints."""
    answer = run_with_torch(script, variables)
    return answer.out + answer.err


STRAY = (
    HEAD
    + """
kernel void behind(device float* x, uint i [[thread_position_in_grid]]) { x[i] = 1; }
kernel void before(device float* x, uint i [[thread_position_in_grid]]) { x[int(i) - 3] = 1; }
struct Two { device float* parts[2]; };
kernel void in_table(constant Two& two, device const float* x, uint i [[thread_position_in_grid]]) {
  two.parts[1][i] = x[0];
}
"""
)
_MADE = {
    "empty": lambda: torch.empty(100, device="mps"),
    "computed": lambda: torch.ones(100, device="mps") * 2,
    "copied": lambda: torch.arange(100.0).to("mps"),
}
_NOT_CAUGHT = (
    "On a Mac this is not caught and overwrites other data; ANYMPS_CHECK_SHADERS=all names the line of the kernel"
)


@pytest.mark.parametrize("made", _MADE)
def test_a_write_beside_a_buffer_harms_nothing(made: str) -> None:
    """However its memory came to be: 128 threads on 100 numbers end in one error, and the program goes on."""
    for _ in range(3):
        x, beside = _MADE[made](), [_MADE[made]() for _ in range(20)]
        sums = [one.sum().item() for one in beside]
        assert error_of(library(STRAY).behind, x, threads=128) == (
            "anymps: the Metal kernel 'behind' wrote 112 bytes past the end of argument 0, starting at byte 400 of "
            f"400. {_NOT_CAUGHT}"
        )
        assert x.tolist() == [1.0] * 100
        assert error_of(library(STRAY).before, x, threads=100) == (
            "anymps: the Metal kernel 'before' wrote 12 bytes before the start of argument 0, starting at byte -12 of "
            f"400. {_NOT_CAUGHT}"
        )
        library(STRAY).behind(x, threads=100)  # the margins are whole again
        assert [one.sum().item() for one in beside] == sums or made == "empty"


def test_a_write_beside_a_tensor_of_a_table() -> None:
    """And a buffer that the kernel only reads is left where it is."""
    parts, x = [torch.zeros(100, device="mps") for _ in range(2)], torch.arange(100.0).to("mps")
    place = x.data_ptr()
    with pytest.raises(
        RuntimeError, match="'in_table' wrote 112 bytes past the end of argument 0, starting at byte 400"
    ):
        library(STRAY).in_table(parts, x, threads=128)
    assert x.data_ptr() == place


def test_a_write_beside_a_buffer_in_a_recording(tmp_path: Path) -> None:
    """As an operator, too."""
    x = torch.ones(100, device="mps") * 2
    with anymps.record(tmp_path / "run.anymps"), pytest.raises(RuntimeError, match="wrote 112 bytes past the end"):
        library(STRAY).behind(x, threads=128)
    assert x.sum().item() == 100
