"""The fitted coefficients: their intervals, their limits, their accuracy, and the page that shows it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anymps.cost import predict_operator
from cost.calls import COEFFICIENTS, M1, ROOT, TORCH, call, product

PAGE = (ROOT / "docs" / "fidelity-times.md").read_text(encoding="utf-8")
SHORT = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")


def test_few_timings_make_a_wide_interval() -> None:
    """A group norm was never timed in public; a product was, more than a hundred times."""
    norm = predict_operator(
        call("aten::native_group_norm(float32[8, 64, 9999]) -> (float32[8, 64, 9999], float32[8, 8], float32[8, 8])"),
        M1,
        TORCH,
    )
    gemm = predict_operator(product(2048), M1, TORCH)
    assert norm.rows == 0 < 100 < gemm.rows
    assert norm.high / norm.low > 1.14 * gemm.high / gemm.low


def test_coefficients_are_within_what_is_possible() -> None:
    """No class beats the Mac's rates by more than a cache explains, and nothing is negative."""
    for row in COEFFICIENTS["matrix"].values():
        assert 0.3 < row["peak"] <= 1.05
        assert 0.2 < row["bandwidth"] <= 1.05
    for name, row in COEFFICIENTS["kernel"].items():
        least = 5e-4 if name == "median" else 0.01  # MPSGraph's median of 25 numbers takes 70 ns a number on an M4
        assert least < row["bandwidth"] <= 1.05
        assert row["operations"] > 0
    for name, groups in COEFFICIENTS["change"].items():
        # An M1 Ultra's sorts along an outer axis took seven times as long as an M4 Pro's; PyTorch's own scatter of
        # whole rows reaches half of the bandwidth, MPSGraph's a tenth.
        most = 9 if name == "sort_outer" else 6
        least = 0.01 if name == "median" else 0.15  # PyTorch's own sorts, MPSGraph's does far worse
        assert all(least < change < most for change in groups.values())
    assert 0.4 < COEFFICIENTS["dtype"]["bfloat16, emulated"] < 0.7
    assert 3.5 < COEFFICIENTS["dtype"]["half types, M5"] < 6
    assert 200 < COEFFICIENTS["common"]["neural_depth"] < 1500
    for times in COEFFICIENTS["microseconds"].values():
        assert all(1 < time < 500 for time in times.values())


def test_the_accuracy_does_not_get_worse() -> None:
    """The figures of machines left out, as they were: a change may only better them, or bring timings of new kernels.

    What one chip alone was timed with is not among those that were reached before.
    """
    found = COEFFICIENTS["accuracy"]
    assert found["all"]["median"] <= 0.18
    assert found["on several chips"]["median"] <= 0.155
    assert found["on several chips"]["nine_tenths"] <= 0.71
    assert found["torch 2.5 and later"]["nine_tenths"] <= 0.8
    assert found["shapes left out too"]["median"] <= 0.185
    assert found["wait predicted too"]["median"] <= 0.23
    assert found["scored"] >= 750
    assert 0.78 <= found["held"] <= 0.84
    steps = found["steps"]
    errors = sorted(abs(one["predicted"] / one["measured"] - 1) for one in steps)
    assert len({one["tape"].partition("-")[0] for one in steps}) >= 10
    assert errors[len(errors) // 2] <= 0.17
    assert sum(error <= 0.5 for error in errors) >= 0.9 * len(errors)
    inside, of = (sum(part) for part in zip(*found["steps held"].values(), strict=True))
    assert of == len(steps)
    assert 0.78 <= inside / of <= 0.84
    half = sum(error <= 0.5 for error in errors) / len(errors)
    models = len({one["tape"].partition("-")[0] for one in steps})
    median = errors[len(errors) // 2]
    within = f"{100 * median:.0f} % | {100 * half:.0f} % | {100 * inside / of:.0f} %"
    assert f"| {len(steps)} steps of {models} models | {within} |" in SHORT
    single, near = (100 * found["all"][name] for name in ("median", "within_half"))
    assert f"that the fit had not seen | {single:.0f} % | {near:.0f} % | {100 * found['held']:.0f} % |" in SHORT
    ratio = found["ratio"]
    assert f"the ratio of two Macs' times | {100 * ratio['median']:.0f} % | | {100 * ratio['held']:.0f} % |" in SHORT
    assert f"| **all that were scored** | {found['scored']} | {100 * found['all']['median']:.0f} % |" in PAGE


def test_the_coefficients_are_what_the_fit_says() -> None:
    """Fitting again gives those that are there: nobody changed a class without fitting.

    How accurate they are takes 100 fits, each without a chip, a source or a network, which `make stress` makes.
    """
    pytest.importorskip("numpy", reason="the fit needs NumPy")
    script = ROOT / "benchmarks" / "fit_times.py"
    if not script.exists():
        pytest.skip("a source distribution has no benchmarks")
    command = [sys.executable, str(script), "--check", "--coefficients"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.endswith("the files say the same\n")
