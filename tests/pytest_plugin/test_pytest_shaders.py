"""`pytest --mps --mps-check-shaders`: a test whose Metal kernels have a fault fails."""

from __future__ import annotations

from gate import Gate, gate, loaded

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

SUITE = '''\
    import pytest, torch

    @pytest.fixture
    def library():
        return torch.mps.compile_shader("""
    kernel void beyond(device float* x, uint i [[thread_position_in_grid]]) {
      x[i + 1] = 0;
    }
    kernel void same(device float* x, uint i [[thread_position_in_grid]]) {
      x[0] = 0;
    }
    """)

    def test_beyond(library):
        library.beyond(torch.ones(4, device="mps"))

    def test_same(library):
        library.same(torch.ones(4, device="mps"))
'''


def test_a_fault_fails_the_test(gate: Gate) -> None:
    """With the sentence of the finding; what only is not allowed does not."""
    gate.write(test_it=SUITE)
    result = gate.run("--mps-check-shaders")
    result.assert_outcomes(passed=1, failed=1)
    lines = result.outlines
    at = lines.index("1 fault of Metal kernels (--mps-check-shaders):")
    assert lines[at + 1] == (
        "  The Metal kernel `beyond` writes past the end of argument 0 at line 3, `x[i + 1] = 0;`: 4 bytes at "
        "byte 16 of 16 (first in thread 3, group 0; once in the launch)."
    )


def test_without_the_option_nothing_is_checked(gate: Gate) -> None:
    """A read past the end is not seen."""
    gate.write(test_it=SUITE.replace("x[i + 1] = 0;", "x[i] = x[i + 1];"))
    gate.run().assert_outcomes(passed=2)
