"""Sizes that are ever new do not fill the memory of a recording: from some number on they share a signature."""

from __future__ import annotations

import pytest
import torch

import anymps
from anymps.findings import Story
from anymps.record import Phase, RecordingBuilder
from anymps.report._words import limits

MOST = 1 << 17
MANY = (
    "The run had more sizes than a recording keeps: later calls of {} are counted by operator and dtype, not by size."
)


@pytest.mark.usefixtures("virtual_device")
def test_a_native_recording_keeps_so_many_sizes() -> None:
    """Beyond 131,072 signatures a call's sizes are left out, its dtype is not; all calls are counted."""
    base = torch.ones(0, 400, 400, device="mps")
    with anymps.record() as capture:
        for row in range(1, 380):
            for column in range(1, 380):
                base.new_empty((0, row, column)).neg()
    recording = capture.recording
    assert recording.sizeless == ("aten::neg",)
    texts = {signature.inputs for signature in recording._signatures.values()}
    assert ("float32[...]",) in texts
    assert MOST <= len(texts) <= MOST + 10
    assert 379 * 379 == sum(use.count for use in recording.operators() if use.name == "aten::neg")


def told(*operators: str) -> list[str]:
    """What a report says of a recording in which these met too many sizes."""
    builder = RecordingBuilder()
    for operator in operators:
        builder.entry(operator, start_ns=0, phase=Phase.FORWARD, inputs=["float32[...]"], outputs=["float32[...]"])
    return limits(Story.of(builder.close()))


def test_a_report_says_so() -> None:
    """Three operators are named; without such a call nothing is said."""
    assert MANY.format("`aten::neg`") in told("aten::neg")
    many = MANY.format("`aten::add`, `aten::cat`, `aten::mul` and 1 more")
    assert many in told("aten::neg", "aten::mul", "aten::add", "aten::cat")
    assert not [sentence for sentence in told() if "sizes" in sentence]
