"""Kernels of Inductor: what their source shows, such as a scatter that each thread repeats; the lines they compute."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from anymps.capture._generated_kernels import (
    CodeLine,
    KernelLines,
    RepeatedScatter,
    miscompiled,
    repeated_scatters,
    scattering_nodes,
)

ADD = "c10::metal::AtomicType<float>::atomic_add(reinterpret_cast<device float*>(out_ptr1), {place}, {value});"


def kernel(scatter: str, *, name: str = "generated_kernel_1", threads: int = 40) -> str:
    """A kernel in the form of torch 2.13: a sum over what each thread reads, and then an addition at an index."""
    return f"""
    [[max_total_threads_per_threadgroup({threads})]]
    kernel void {name}(
        device float* out_ptr1,
        constant float* in_ptr0,
        constant long* in_ptr1,
        uint2 thread_pos [[thread_position_in_grid]],
        uint2 group_pos [[thread_position_in_threadgroup]]
    ) {{
        auto xindex = thread_pos.x;
        auto r0_index = thread_pos.y;
        int x0 = xindex;
        threadgroup float tmp_acc_0[32];
        float tmp_acc_1 = 0;
        for(auto r0__cnt = 0; r0__cnt < 2; ++r0__cnt) {{
            int r0__linear_idx = 2 * r0_index + r0__cnt;
            if (r0__linear_idx >= 80) break;
            int r0_1 = r0__linear_idx;
            auto tmp0 = in_ptr0[r0_1 + 80*x0];
            auto tmp4 = in_ptr1[r0_1];
            tmp_acc_1 += tmp0;
        }}
        auto tmp1 = c10::metal::threadgroup_sum(tmp_acc_0, tmp_acc_1, r0_index * 1, {threads});
        auto tmp2 = in_ptr1[x0];
        auto tmp3 = tmp2 < 0 ? tmp1 : static_cast<decltype(tmp1)>(0.0);
        {scatter}
    }}
"""


def test_a_sum_that_every_thread_adds() -> None:
    """Neither the place nor the value comes from the thread, and no thread is alone."""
    source = kernel(ADD.format(place="tmp2", value="static_cast<float>(tmp3)"))
    assert list(repeated_scatters(source)) == [RepeatedScatter("generated_kernel_1", 40)]


@pytest.mark.parametrize(
    "scatter",
    [
        ADD.format(place="r0_index + 40*tmp2", value="static_cast<float>(tmp1)"),
        ADD.format(place="tmp4", value="static_cast<float>(tmp1)"),
        ADD.format(place="tmp2", value="static_cast<float>(tmp0)"),
        "if (r0_index == 0) " + ADD.format(place="tmp2", value="static_cast<float>(tmp1)"),
        "out_ptr1[x0] = static_cast<float>(tmp1);",
    ],
)
def test_an_addition_that_is_right(scatter: str) -> None:
    """Each thread adds at its own place or what is its own, or only one adds."""
    assert list(repeated_scatters(kernel(scatter))) == []


def test_other_kernels_beside_it() -> None:
    """Each kernel is looked at by itself; a group of one thread, and a kernel of a person's, repeat nothing."""
    scatter = ADD.format(place="tmp2", value="tmp1")
    right, wrong = kernel("", name="generated_kernel_0"), kernel(scatter, threads=1024)
    alone, own = kernel(scatter, name="generated_kernel_2", threads=1), kernel(scatter, name="mine")
    found = list(repeated_scatters(right + wrong + alone + own))
    assert found == [RepeatedScatter("generated_kernel_1", 1024)]


def test_the_nodes_of_a_scatter() -> None:
    """Other nodes of the kernel are none, and neither is what has no node."""
    add = SimpleNamespace(target="aten.add.Tensor")
    put = SimpleNamespace(target="aten.index_put.default")
    scheduled = [object(), SimpleNamespace(node=SimpleNamespace(origins=[add, put]))]
    assert list(scattering_nodes(scheduled)) == [put]
    assert list(scattering_nodes(scheduled[:1])) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("out[i] = (i / 65536) % 6;", ["(i / 65536) % 6"]),
        ("out[i] = (i / 65536u) % 6u + (i/65536)%96;", ["(i / 65536u) % 6u", "(i/65536)%96"]),
        ("out[i] = a[i] / 65536 % 6; b = p.x / 65536 % 6;", ["a[i] / 65536 % 6", "p.x / 65536 % 6"]),
        ("out[i] = (i / 65536) % 8;", []),
        ("out[i] = (i / 65535) % 6;", []),
        ("out[i] = (i / 655360) % 6;", []),
        ("out[i] = (i / 256) % 6;", []),
        ("out[i] = (a + i / 65536) % 6;", []),
        ("out[i] = i / (65536 % 6);", []),
        ("// (i / 65536) % 6\n/* (i / 65536)\n % 6 */ out[i] = i;", []),
        ("out[i] = c10::metal::safe_mod((i) / (65536), 6);", []),
    ],
)
def test_a_quotient_and_its_remainder(source: str, expected: list[str]) -> None:
    """By 65536 and by no power of two, as in pytorch pull request 175481; nothing else is known to be wrong."""
    assert list(miscompiled(source)) == expected


NAMES = ("x", "h", "y")


def stack(line: int) -> str:
    """What a node says of its place: the program's line, and a line of torch's within it."""
    return (
        f'  File "train.py", line {line}, in forward\n    y = f(x)\n  File "torch/nn.py", line 7, in f\n    return x\n'
    )


def graph(lines: dict[str, int]) -> list[SimpleNamespace]:
    """Dynamo's graph of `NAMES`; a name without a line is an input."""
    return [
        SimpleNamespace(op="call", name=name, meta={"stack_trace": stack(lines[name])} if name in lines else {})
        for name in NAMES
    ]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inductor's cache, empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


def fresh() -> KernelLines:
    """What a new process knows."""
    return KernelLines(lambda file: file.startswith("torch/"))


def test_a_module_that_is_new(cache: Path) -> None:
    """Its map has the stacks of the nodes; what has none computes no line."""
    lines = fresh()
    lines.add_graph(graph({"h": 9, "y": 12}))
    found = lines.of_module("/cache/ab/cab.py", [(10, ""), (20, stack(9)), (25, stack(12)), (31, stack(9))])
    nine, twelve = CodeLine("train.py", 9, "forward"), CodeLine("train.py", 12, "forward")
    assert found == {10: None, 20: nine, 25: twelve, 31: nine}


def test_a_module_from_the_cache_of_a_program_that_was_edited(cache: Path) -> None:
    """Its map is of the time when it was written: the nodes say where the lines are now."""
    written = fresh()
    written.add_graph(graph({"h": 9, "y": 12}))
    old = [(10, ""), (20, stack(9)), (25, stack(12))]
    written.of_module("/cache/ab/cab.py", old)
    later = fresh()
    later.add_graph(graph({"h": 10, "y": 14}))
    found = later.of_module("/cache/ab/cab.py", old)
    assert found == {10: None, 20: CodeLine("train.py", 10, "forward"), 25: CodeLine("train.py", 14, "forward")}


def test_a_module_of_which_nothing_is_known(cache: Path) -> None:
    """Lines that no graph has are those of an older program: none is better than a wrong one."""
    lines = fresh()
    lines.add_graph(graph({"h": 10, "y": 14}))
    assert lines.of_module("/cache/ab/cab.py", [(20, stack(9)), (25, stack(12))]) == {}
    assert lines.of_module("/cache/ab/cac.py", [(20, "")]) == {}


def test_a_file_that_says_nonsense_is_passed_over(cache: Path) -> None:
    """What lies in the cache may be anyone's."""
    lines = fresh()
    lines.add_graph(graph({"h": 9, "y": 12}))
    lines.of_module("/cache/ab/cab.py", [(20, stack(9))])
    (kept,) = cache.glob("anymps-lines/*.json")
    for text in ("", "[]", '{"graph": 3, "nodes": {}}', '{"graph": "' + "0" * 64 + '", "nodes": {"20": 1}}'):
        kept.write_text(text, "utf-8")
        found = lines.of_module("/cache/ab/cab.py", [(20, stack(9))])
        assert found == {20: CodeLine("train.py", 9, "forward")}
