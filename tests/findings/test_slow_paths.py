"""MPS861 and on: calls that take a slow path of the backend, and what that adds to a step of the recording's Mac."""

from __future__ import annotations

import pytest

from anymps.findings import Finding, Severity, find
from anymps.findings.rules._known_faults import MARK
from anymps.forecast import forecast
from anymps.record import Fate, Flag, Recording
from anymps.rules.faults import all_hazards
from timed_steps import Steps

LAST = "float32[16, 64, 64, 64]"
SLOW = next(hazard for hazard in all_hazards() if hazard.id == "MPS861")


def training(shape: str = LAST, steps: int = 5, products: int = 4) -> Recording:
    """Steps with the backward of two convolutions, one of them of a channels_last input."""
    made = Steps(torch_version="2.13.0")
    weight = "float32[64, 64, 3, 3]"
    for _ in range(steps):
        made.product(products)
        for met in (True, False):
            made.entry(
                "aten::convolution_backward",
                1000,
                inputs=(shape, shape, weight),
                outputs=(shape, weight),
                site=made.line,
            )
            if met:
                mark = f"{MARK}{SLOW.id} aten::convolution_backward"
                made.entry(mark, 0, 0, fate=Fate.MARK, flags=Flag.HAZARD, site=made.line)
        made.end()
    return made.close()


def slow(recording: Recording) -> list[Finding]:
    """The findings of this family."""
    return [finding for finding in find(recording) if finding.id == SLOW.id]


def test_a_slow_path_costs_its_factor_of_the_predicted_time() -> None:
    """Of the calls that meet it alone, within the interval of the step."""
    recording = training()
    (finding,) = slow(recording)
    step = forecast(recording)
    calls = [place for place, seen in enumerate(step.happenings) if seen.call and "convolution" in seen.call.operator]
    seconds = sum(busy.end - busy.start for busy in step.time.device_track if busy.happening in calls) / len(calls)
    assert len(calls) == 2
    assert finding.cost_per_step_ns == pytest.approx(
        (
            1e9 * seconds * (SLOW.factor[0] - 1) * step.time.low / step.time.seconds,
            1e9 * seconds * (SLOW.factor[1] - 1) * step.time.high / step.time.seconds,
        ),
        rel=1e-6,
    )
    assert (finding.count, finding.per_step, finding.severity) == (5, 1.0, Severity.WARNING)
    assert finding.what.startswith(
        "`aten::convolution_backward` was called 5 times in a way that takes a slow path on MPS: the backward of"
    )
    assert " of GPU time to a step, at least " in finding.what
    assert (
        finding.why == "The values are right. The call takes 13 to 30 times as long as another way to the same result."
    )
    assert "x.contiguous()" in finding.fix


@pytest.mark.parametrize(
    ("shape", "products", "expected"),
    [
        (LAST, 4, [Severity.WARNING]),
        (LAST, 600, [Severity.INFO]),
        ("float32[1, 64, 4, 4]", 600, []),
    ],
)
def test_how_much_a_slow_path_matters_goes_by_its_share(shape: str, products: int, expected: list[Severity]) -> None:
    """A warning from a twentieth of the step on, a note of less, and nothing of what nobody would notice."""
    assert [finding.severity for finding in slow(training(shape, products=products))] == expected


def test_a_slow_path_without_a_predicted_step_is_a_note() -> None:
    """It has no price of its own."""
    (finding,) = slow(training(steps=1))
    assert finding.severity is Severity.INFO
    assert "of GPU time" not in finding.what


def test_each_slow_path_has_a_factor_and_nothing_else_has() -> None:
    """It was measured, or the row would not be there; the values are right, so no number is explained by it."""
    for hazard in all_hazards():
        low, high = hazard.factor
        assert (1.0 <= low <= high and high > 1.0) if hazard.is_slow else low == high == 1.0, hazard.id
        assert hazard.is_slow == hazard.id.startswith("MPS8"), hazard.id
    assert len({hazard.id for hazard in all_hazards() if hazard.is_slow}) >= 15
