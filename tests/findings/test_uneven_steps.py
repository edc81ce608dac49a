"""MPS903: steps that take longer than the others, on hand-made recordings."""

from __future__ import annotations

import re

import pytest

from anymps.findings import Finding, Severity, find
from anymps.record import Direction, Fate, Phase, Recording, Wait
from timed_steps import Steps


def recorded(
    *, every: int = 5, copies: int = 0, read: bool = False, shapes: int = 0, fallbacks: int = 0, calls: int = 600
) -> Recording:
    """Twenty steps of small kernels, of which some do more: at lines 88 to 90 of the script."""
    steps = Steps(torch_version="2.13.0", loop="training")
    line = steps.builder.site("/home/me/project/train.py", 88, "validate", "y = model(x.to(device))")
    for step in range(20):
        steps.small(calls)
        odd = step % every == every - 1
        for _ in range(copies if odd else 0):
            steps.entry(
                "aten::_copy_from", 1000, fate=Fate.COPY, phase=Phase.MOVE, site=line, wait=Wait.COPY_TO_MPS,
                direction=Direction.CPU_TO_MPS, moved_bytes=512,
            )  # fmt: skip
            steps.small(8)
        for at in range(shapes):
            tensor = f"float32[1, 3, {step + 8 if odd else 8}, {at + 8}]"
            steps.entry("aten::_softmax", 1000, inputs=(tensor,), outputs=(tensor,), site=line)
        for _ in range(fallbacks if odd else 0):
            steps.fallback(2_000_000)
        if read and odd:
            steps.item()
        steps.end()
    return steps.close()


def found(recording: Recording) -> list[Finding]:
    """The findings of this rule alone."""
    return [finding for finding in find(recording) if finding.id == "MPS903"]


@pytest.mark.parametrize(
    ("does", "causes"),
    [
        ({"copies": 64}, "64 waits (copy to mps) at train.py:88 and 512 more operators on mps"),
        ({"shapes": 4}, "4 graphs compiled for new shapes, most at train.py:88"),
        ({"fallbacks": 2}, "2 waits (fallback) at train.py:36"),
    ],
)
def test_what_makes_some_steps_longer(does: dict[str, int], causes: str) -> None:
    """How often, how much longer on the Mac of the run, by which calls, and what that is of all steps."""
    (finding,) = found(recorded(**does))
    assert (finding.severity, finding.count, finding.per_step) == (Severity.INFO, 4, 0.0)
    ratio = r"\d+\.\d times as long on an M3 Pro 18GB \([\d.]+ ms in place of [\d.]+ (?:us|ms)\)"
    assert re.fullmatch(
        rf"Every 5 steps, one takes {ratio}: {re.escape(causes)}\. "
        r"That is \d+ % of the predicted time of all steps\.",
        finding.what,
    ), finding.what
    low, high = finding.cost_ns
    assert 0 < low < high


@pytest.mark.parametrize(
    "does",
    [{}, {"read": True}, {"read": True, "calls": 8}, {"copies": 64, "every": 1}, {"shapes": 4, "every": 20}],
    ids=["nothing", "a value", "a value of a tiny step", "each step", "a smaller last batch"],
)
def test_even_steps(does: dict[str, int]) -> None:
    """Silent where steps are alike, where what some do takes little, and where one alone has new shapes."""
    assert found(recorded(**does)) == []


def test_one_step() -> None:
    """A single one is told by its number."""
    (finding,) = found(recorded(copies=64, every=20))
    assert finding.what.startswith("Step 20 takes ")
