"""The tapes of public steps: `benchmarks/step_tapes.py` writes what it reads, and each scored step has one in order."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from anymps.cost import Happening, OperatorCall

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the tapes; a source distribution has none."""
    if not BENCHMARKS.exists():
        pytest.skip("a source distribution has no benchmarks")
    spec = importlib.util.spec_from_file_location("step_tapes", BENCHMARKS / "step_tapes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "step_tapes", module)
    spec.loader.exec_module(module)
    return module


def test_a_tape_keeps_order_code_and_waits(tapes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Microseconds are whole; the code before a mark that is no wait is part of what comes next, or of the end."""
    monkeypatch.setattr(tapes, "TAPES", tmp_path)
    relu = OperatorCall("aten::relu", ("float32[4]",), ("float32[4]",))
    total = OperatorCall("aten::sum.dim_IntList", ("float32[4, 3]",), ("float32[3]",), axis=0)
    copied = OperatorCall("aten::copy_", ("float32[4]", "float32[4] on cpu"), ())
    step = [
        Happening("kernel", relu, 3.4e-6),
        Happening("wait", host_code=2e-6),
        Happening("kernel", total, 1e-6),
        Happening("copy", copied, 0.0, None, 16, True),
        Happening("kernel", relu, 0.2e-6),
        Happening("wait", None, 7e-6, waits=True),
        Happening("wait", host_code=5e-6),
    ]
    tapes.write("step", step)
    assert (tmp_path / "step.txt").read_text(encoding="utf-8") == (
        "kernel aten::relu(float32[4]) -> (float32[4])\n"
        "kernel aten::sum.dim_IntList(float32[4, 3]) -> (float32[3]) {axis=0}\n"
        "copy moves=16 waits aten::copy_(float32[4], float32[4] on cpu) -> ()\n"
        "wait\n"
        "\n"
        "0:3 1:3 2 0 3:7 end:5\n"
    )
    found = tapes.read("step")
    assert [(one.kind, one.call, round(1e6 * one.host_code), one.moved, one.waits) for one in found] == [
        ("kernel", relu, 3, 0, False),
        ("kernel", total, 3, 0, False),
        ("copy", copied, 0, 16, True),
        ("kernel", relu, 0, 0, False),
        ("wait", None, 7, 0, True),
        ("wait", None, 5, 0, False),
    ]


def test_no_step_waits_more_often_than_its_source_says(tapes: ModuleType) -> None:
    """Waits of the benchmark may be missing on a tape; where a source notes none, there may be one."""
    with (BENCHMARKS / "times" / "steps.csv").open(encoding="utf-8", newline="") as file:
        said = {line["tape"]: int(line["waits"]) for line in csv.DictReader(file)}
    assert len(said) > 60
    for tape, waits in said.items():
        assert sum(happening.waits for happening in tapes.read(tape)) <= max(1, waits), tape
