"""Lines of the kernels of torch.compile: from Inductor's nodes, and from what is kept beside its cache."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anymps.capture._kernel_lines import CodeLine, KernelLines
from anymps.metal._tape import through_line

KERNEL = """
    [[max_total_threads_per_threadgroup(40)]]
    kernel void generated_kernel{suffix}(
        device float* out_ptr0,
        uint x0 [[thread_position_in_grid]]
    ) {{
        out_ptr0[x0] = {value};
    }}
"""


OUTPUT = SimpleNamespace(op="output", name="output", meta={})


def node(name: str, line: int, file: str = "net.py") -> Any:
    """A node of a graph, whose stack ends in a line of torch."""
    frames = (f'  File "{file}", line {line}, in forward\n', '  File "/torch/nn/layer.py", line 7, in forward\n')
    return SimpleNamespace(op="call_function", name=name, meta={"stack_trace": "".join(frames)})


def made_of(*nodes: Any) -> list[Any]:
    """What Inductor schedules as one kernel: its nodes, and a marker without one."""
    return [SimpleNamespace(), *(SimpleNamespace(node=SimpleNamespace(origins=[origin])) for origin in nodes)]


def in_torch(file: str) -> bool:
    return file.startswith("/torch/")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inductor's cache, empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def written(cache: Path) -> KernelLines:
    """One graph of three lines, and two kernels of it as Inductor writes them, still without their numbers."""
    lines = KernelLines(in_torch)
    first, second, third = node("relu", 4), node("mul", 5), node("sum_1", 6)
    lines.add_graph([first, second, third, OUTPUT])
    lines.add_kernel(KERNEL.format(suffix="", value=1), made_of(second, first, second))
    lines.add_kernel(KERNEL.format(suffix="", value=2), made_of(third))
    return lines


LIBRARY = KERNEL.format(suffix="_0", value=1) + KERNEL.format(suffix="_1", value=2)


def test_the_lines_of_each_kernel_in_the_order_of_the_graph(written: KernelLines) -> None:
    """A line that two nodes share is told once, and frames of torch are passed over."""
    assert written.of_library(LIBRARY) == {
        "generated_kernel_0": [CodeLine("net.py", 4, "forward"), CodeLine("net.py", 5, "forward")],
        "generated_kernel_1": [CodeLine("net.py", 6, "forward")],
    }


def test_a_kernel_of_the_cache_has_the_lines_of_today(written: KernelLines) -> None:
    """In a later process Inductor writes nothing, and the program may have been edited above its lines."""
    later = KernelLines(in_torch)
    later.add_graph([node("relu", 14), node("mul", 15), node("sum_1", 17), OUTPUT])
    assert later.of_library(LIBRARY) == {
        "generated_kernel_0": [CodeLine("net.py", 14, "forward"), CodeLine("net.py", 15, "forward")],
        "generated_kernel_1": [CodeLine("net.py", 17, "forward")],
    }


def test_no_lines_for_what_is_not_known(written: KernelLines, cache: Path) -> None:
    """A kernel that was never written, one of another graph, and files that are not ours."""
    assert written.of_library(KERNEL.format(suffix="_0", value=3)) == {}
    other = KernelLines(in_torch)
    other.add_graph([node("sin", 4), node("mul", 5)])
    assert other.of_library(LIBRARY) == {}
    for nonsense in ("", "[]", '{"graph": 1, "nodes": 2}', "\x00"):
        for file in (cache / "anymps-lines").iterdir():
            file.write_text(nonsense)
        assert KernelLines(in_torch).of_library(LIBRARY) == {}


def test_a_source_of_a_persons(written: KernelLines) -> None:
    """Its kernels are none of Inductor's."""
    assert written.of_library("kernel void mine(device float* x) { x[0] = 1; }") == {}


def test_a_cache_that_cannot_be_written(cache: Path) -> None:
    """The lines are known in this process all the same."""
    (cache / "anymps-lines").write_text("a file in the folder's place")
    lines = KernelLines(in_torch)
    lines.add_graph([node("relu", 4)])
    lines.add_kernel(KERNEL.format(suffix="", value=1), made_of(node("relu", 4)))
    assert lines.of_library(KERNEL.format(suffix="_0", value=1)) == {
        "generated_kernel_0": [CodeLine("net.py", 4, "forward")]
    }


@pytest.mark.parametrize("line", [1, 2, 300])
def test_a_call_through_a_line(line: int) -> None:
    """Its frames say the file, the line and the function that were given."""
    with pytest.raises(ZeroDivisionError) as raised:
        through_line("net.py", line, "forward")(lambda: print(1 / 0))
    frame = raised.traceback[1]
    assert (frame.frame.code.raw.co_filename, frame.lineno + 1, frame.name) == ("net.py", line, "forward")
