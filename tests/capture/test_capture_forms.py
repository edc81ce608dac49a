"""What a signature says beside sizes, as both sources record it: layouts, axes, and the numbers of a convolution."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import anymps
from anymps.record import Fate, Form, Recording

pytestmark = pytest.mark.usefixtures("virtual_device")

SOURCES = pytest.mark.parametrize("source", ["native", "observer"])


def forms(recording: Recording, operator: str) -> list[Form]:
    """Those of the calls of an operator, in their order."""
    signatures = [recording.signature(call.signature) for call in recording.calls()]
    return [form.form for form in signatures if form.operator.startswith(operator) and form.fate is not Fate.MARK]


@SOURCES
def test_layouts(source: str) -> None:
    """Of each input: with its axes in another order, a slice, channels last; plain ones say nothing."""
    x, weight = torch.randn(8, 16, 32, device="mps"), torch.randn(16, 4, device="mps")
    image = torch.randn(2, 4, 8, 8, device="mps").contiguous(memory_format=torch.channels_last)
    with anymps.record(source=source) as capture:
        functional.linear(x.transpose(1, 2), weight.t())
        functional.linear(x.transpose(1, 2).contiguous(), weight.t().contiguous())
        image * 2
        x[:, ::2] * 2
        x[:1].transpose(0, 2).transpose(0, 2) * 2
        weight.expand(3, 16, 4) * 2
    recording = capture.recording
    assert [form.layout for form in forms(recording, "aten::linear")] == [("transposed", "transposed"), ()]
    assert [form.layout[:1] for form in forms(recording, "aten::mul")] == [
        ("channels_last",), ("other",), (), ("other",)
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
