"""What the second run of failing tests, without mps, makes of a suite's own choice of mps."""

from __future__ import annotations

import pytest

from anymps.pytest_plugin._rerun import on_cpu, without_mps


@pytest.mark.parametrize(
    ("value", "without"),
    [
        ("mps", "cpu"),
        ("MPS:0", "cpu"),
        ("cpu,mps", "cpu"),
        ("cuda,mps:0,meta", "cuda,cpu,meta"),
        ("clamps", "clamps"),
        ("not mps", "not mps"),  # an expression, such as pytest's `-k` takes
        ("/home/mps", "/home/mps"),
        ("--device=mps", "--device=mps"),
        ("", ""),
    ],
)
def test_values(value: str, without: str) -> None:
    """A value that names the device, alone or in a list, names the CPU; no other is changed."""
    assert without_mps(value) == without


@pytest.mark.parametrize(
    ("test", "twin"),
    [
        ("tests/test_mps.py::test_sum[mps-float32]", "tests/test_mps.py::test_sum[cpu-float32]"),
        ("test_it.py::test_sum[x-mps:0]", "test_it.py::test_sum[x-cpu]"),
        ("test_it.py::TestItMPS::test_sum_mps_float32", "test_it.py::TestItCPU::test_sum_cpu_float32"),
        ("test_it.py::TestClamps::test_clamps[lamps]", "test_it.py::TestClamps::test_clamps[lamps]"),
    ],
)
def test_ids(test: str, twin: str) -> None:
    """A test that is made for each device is known on the CPU by another id."""
    assert on_cpu(test) == twin
