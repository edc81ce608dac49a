"""What findings about waits cost: what a step on the recording's Mac would save without them."""

from __future__ import annotations

import pytest

from anymps.findings import Finding, find, wait_places
from anymps.findings._costs import FALLBACK, ITEM
from anymps.forecast import forecast
from anymps.record import Recording
from anymps.report._words import limits
from timed_steps import MS, Steps


def reading(**meta: object) -> Recording:
    """Five steps: a read in the middle, whose queue is long, and an operator on the CPU at another line."""
    steps = Steps(**meta)
    read, model = steps.line, steps.builder.site("/home/me/project/model.py", 19, "forward", "u = svd(x)")
    for _ in range(5):
        steps.product(20)
        steps.line = read
        steps.item()
        steps.small(40)
        steps.line = model
        steps.fallback(80 * MS)
        steps.end()
    return steps.close()


def found(recording: Recording) -> dict[str, Finding]:
    """The findings by rule, in their order."""
    return {it.id: it for it in find(recording)}


def test_a_wait_costs_what_the_step_would_save() -> None:
    """With the interval of the step, for the finding and in the table of waits alike."""
    recording = reading()
    step = forecast(recording)
    saved = {it.place.wait.label: 1e9 * it.seconds for it in step.waits}
    findings = found(recording)
    for rule, wait in (("MPS201", "item"), ("MPS102", "fallback")):
        low, high = findings[rule].cost_per_step_ns
        assert low == pytest.approx(saved[wait] * step.time.low / step.time.seconds, abs=1)
        assert high == pytest.approx(saved[wait] * step.time.high / step.time.seconds, abs=1)
        (place,) = (it for it in wait_places(recording) if it.site == findings[rule].site)
        assert place.cost_per_step_ns == pytest.approx((low, high), abs=1)
    assert saved["fallback"] > 10 * saved["item"]
    assert saved["fallback"] > 39 * MS


def test_findings_are_sorted_by_it() -> None:
    """80 ms on the CPU come before a read, whatever the public ranges say."""
    assert [it for it in found(reading()) if it in ("MPS102", "MPS201")] == ["MPS102", "MPS201"]


def test_without_a_prediction_the_public_ranges_stand() -> None:
    """And the report says what its costs are."""
    recording, unknown = reading(), reading(torch_version="")
    findings = found(unknown)
    assert findings["MPS201"].cost_ns == pytest.approx(ITEM.of(5, 20), abs=1)
    assert findings["MPS102"].cost_ns == pytest.approx(FALLBACK.of(5, 5 << 20), abs=1)
    assert limits(unknown)[0] == (
        "Times are of this machine, not of a Mac. Costs are ranges from public measurements on Macs, and leave out "
        "what draining a long queue costs."
    )
    assert limits(recording)[0] == (
        "Times are of this machine, unless they are said to be the M3 Pro 18GB's: those are predicted. What a wait "
        "costs is what the predicted step would save without it; other costs are ranges from public measurements. "
        "The program's own code was timed here, and is scaled to that Mac's CPU."
    )
