"""What a signature says: layouts, axes, the numbers of a convolution; and sizes, as long as they are not ever new."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import anymps
from anymps.findings import Story
from anymps.record import Fate, Form, Phase, Recording, RecordingBuilder
from anymps.report._words import limits

pytestmark = pytest.mark.usefixtures("virtual_device")

SOURCES = pytest.mark.parametrize("source", ["native", "observer"])


def forms(recording: Recording, operator: str) -> list[Form]:
    """Those of the calls of an operator, in their order."""
    signatures = [recording.signature(call.signature) for call in recording.calls()]
    return [form.form for form in signatures if form.operator.startswith(operator) and form.fate is not Fate.MARK]


@SOURCES
def test_layouts(source: str) -> None:
    """Of each input: with its axes in another order, the last one too or not, a slice, channels last; else nothing."""
    x, weight = torch.randn(8, 16, 32, device="mps"), torch.randn(16, 4, device="mps")
    image = torch.randn(2, 4, 8, 8, device="mps").contiguous(memory_format=torch.channels_last)
    with anymps.record(source=source) as capture:
        functional.linear(x.transpose(1, 2), weight.t())
        functional.linear(x.transpose(1, 2).contiguous(), weight.t().contiguous())
        image * 2
        x[:, ::2] * 2
        x[:1].transpose(0, 2).transpose(0, 2) * 2
        weight.expand(3, 16, 4) * 2
        x.transpose(0, 1) * 2
        x.permute(1, 2, 0) * 2
    recording = capture.recording
    assert [form.layout for form in forms(recording, "aten::linear")] == [("transposed", "transposed"), ()]
    assert [form.layout[:1] for form in forms(recording, "aten::mul")] == [
        ("channels_last",), ("other",), (), ("other",), ("rows",), ("transposed",)
    ]  # fmt: skip


@SOURCES
def test_axes(source: str) -> None:
    """Counted from the first, all of several, and none where none is given."""
    x = torch.randn(4, 5, 6, device="mps")
    index = torch.zeros(4, 5, 2, dtype=torch.int64, device="mps")
    with anymps.record(source=source) as capture:
        for dim in (1, -1, (0, -1)):
            x.sum(dim)
        x.sum()
        x.argmax(0)
        x.argmax()
        x.gather(2, index)
        torch.sort(x, -3)
        x.softmax(-1)
        x.select(1, 0)
        torch.cat([x, x], 1)
    recording = capture.recording
    assert [form.axes for form in forms(recording, "aten::sum")] == [(1,), (2,), (0, 2), ()]
    assert [form.axes for form in forms(recording, "aten::argmax")] == [(0,), ()]
    assert [form.axes for form in forms(recording, "aten::gather")] == [(2,)]
    assert [form.axes for form in forms(recording, "aten::sort")] == [(0,)]
    assert [form.axes for form in forms(recording, "aten::_softmax")] == [(2,)]
    assert {form.axes for name in ("aten::select", "aten::cat") for form in forms(recording, name)} <= {()}


@SOURCES
def test_convolutions(source: str) -> None:
    """Forward and backward, and two that differ in the stride alone are two."""
    convolutions = [nn.Conv2d(4, 8, 3, stride=stride, padding=1, groups=2).to("mps") for stride in (1, (2, 1))]
    image = torch.randn(2, 4, 8, 8, device="mps", requires_grad=True)
    with anymps.record(source=source) as capture:
        for one in convolutions:
            one(image).sum().backward()
    recording = capture.recording
    assert [(form.stride, form.dilation, form.groups) for form in forms(recording, "aten::convolution")] == [
        ((1, 1), (1, 1), (2,)), ((1, 1), (1, 1), (2,)), ((2, 1), (1, 1), (2,)), ((2, 1), (1, 1), (2,))
    ]  # fmt: skip


MOST = 1 << 17
MANY = (
    "The run had more sizes than a recording keeps: later calls of {} are counted by operator and dtype, not by size."
)


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
