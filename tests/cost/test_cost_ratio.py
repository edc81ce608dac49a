"""The ratio between two Macs: its interval is its own, narrower than two times apart, and wider where it must be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anymps import Mac, parse_mac
from anymps.cost import Happening, OperatorCall, Ratio, WalkedStep, shipped, speed_ratio, walk_step

FILE = Path(__file__).parents[2] / "src" / "anymps" / "cost" / "coefficients.json"
M1, M4_MAX = (parse_mac(name) for name in ("M1 16GB", "M4 Max 64GB"))


def step(text: str, mac: Mac, count: int = 10) -> WalkedStep:
    """A step of so many such calls."""
    return walk_step([Happening("kernel", OperatorCall.parse(text))] * count, mac, "2.13")


def product(mac: Mac) -> WalkedStep:
    """A step of large products."""
    side = "float32[2048, 2048]"
    return step(f"aten::mm({side}, {side}) -> ({side})", mac)


def factor(ratio: Ratio) -> float:
    """How far the interval goes either way."""
    assert ratio.high / ratio.value == pytest.approx(ratio.value / ratio.low)
    return ratio.high / ratio.value


def test_a_ratio_is_that_of_the_times() -> None:
    """And the other way round its inverse."""
    small, large = product(M1), product(M4_MAX)
    there, back = speed_ratio(large, small), speed_ratio(small, large)
    assert there.value == pytest.approx(small.seconds / large.seconds)
    assert back == pytest.approx((1 / there.value, 1 / there.high, 1 / there.low))


def test_the_interval_is_the_scored_one() -> None:
    """Of classes whose ratios are no harder to predict than others."""
    small, large = product(M1), product(M4_MAX)
    assert factor(speed_ratio(large, small)) == pytest.approx(shipped().intervals["ratio"][1])


def test_classes_that_compare_badly_widen_it() -> None:
    """Sorting differs between Macs by more than its class tells."""
    text = "aten::sort(float32[4096, 4096]) -> (float32[4096, 4096], int64[4096, 4096])"
    plain = factor(speed_ratio(product(M4_MAX), product(M1)))
    assert factor(speed_ratio(step(text, M4_MAX), step(text, M1))) > 1.9 * plain


def test_macs_with_one_chip_are_nearly_as_fast() -> None:
    """Only their memory differs; fewer cores make them as unlike as any two Macs."""
    roomy, fewer = parse_mac("M4 Max 128GB"), parse_mac("M4 Max 32-core GPU 36GB")
    alike = speed_ratio(product(roomy), product(M4_MAX))
    assert alike.value == pytest.approx(1.0)
    assert factor(alike) == pytest.approx(shipped().intervals["ratio, one chip"][1])
    assert 1.05 < factor(alike) < 1.15
    usual = pytest.approx(shipped().intervals["ratio"][1])
    assert factor(speed_ratio(product(roomy), product(fewer))) == usual


def test_waits_differ_between_macs_with_one_chip_too() -> None:
    """Tables of timings by one chip differ by what a wait takes."""
    waiting = [walk_step([Happening("wait", waits=True)] * 10, mac, "2.13") for mac in (M1, parse_mac("M1 8GB"))]
    assert factor(speed_ratio(*waiting)) > 1.3


def test_steps_of_nothing_have_no_ratio() -> None:
    """Nothing is as fast as nothing."""
    nothing = walk_step([], M1, "2.13")
    assert speed_ratio(nothing, nothing) == Ratio(1.0, 1.0, 1.0)


def test_the_ratio_was_scored() -> None:
    """On pairs of timings that the fits did not see, eight tenths of the ratios are nearer than of the times."""
    found = json.loads(FILE.read_text(encoding="utf-8"))["accuracy"]["ratio"]
    assert found["pairs"] >= 70
    assert found["eight_tenths"] < found["times_eight_tenths"]
    assert 0.75 <= found["held"] <= 0.9
    held = [one for one in found["steps"] if one["low"] <= one["measured"] <= one["high"]]
    assert (len(held), len(found["steps"])) == (20, 26)
