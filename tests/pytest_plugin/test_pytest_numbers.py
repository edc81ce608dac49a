"""`pytest --mps --mps-check-numbers`: a test fails if an operator computed another number than the CPU."""

from __future__ import annotations

import pytest

from anymps.numerics import _session
from gate import Gate, gate, loaded

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

TESTS = """
import pytest, torch

@pytest.fixture
def planted():
    library = torch.library.Library("aten", "IMPL", "MPS")
    library.impl("erfc", lambda x: 1 - x.erf())
    yield
    library._destroy()

def test_wrong(planted):
    torch.full((3,), 3.0, device="mps").erfc()

def test_right():
    torch.ones(3, device="mps").exp()
"""


def test_a_test_with_a_wrong_number_fails(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where something other than the CPU computes."""
    monkeypatch.setattr(_session, "can_differ", lambda current: True)
    gate.write(test_numbers=TESTS)
    result = gate.run("--mps-check-numbers")
    result.assert_outcomes(passed=1, failed=1)
    lines = result.outlines
    at = lines.index("1 operator with results that differ from the CPU's (--mps-check-numbers):")
    assert lines[at + 1] == (
        "  test_numbers.py:11: aten::erfc of float32 got 3 of 3 elements wrong; worst at [0]: 2.21133232e-05, "
        "but the CPU computes 2.2090497e-05 (allowed: 32.5 ulp of float32)"
    )
