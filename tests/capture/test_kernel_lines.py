"""The lines of what Inductor wrote: kept as nodes of the graph, and found again when they moved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from anymps.capture._kernel_lines import CodeLine, KernelLines

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
