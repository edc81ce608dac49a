"""Rules about a call that MPS refuses: missing operators, float64, mixed devices, a generator of another device.

What their findings say is in data/refusals.txt.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anymps.findings import RULES, Finding, Severity, is_refusal
from anymps.record import RecordingBuilder, RefusalKind
from findings.golden import cases, rewrite, told
from recordings import META
from rule_loops import only

TORCH = {"torch_version": "2.13.0+cpu"}


def refused(
    source: str, *, kind: str, error: str, message: str, operator: str, origin: Sequence[object] = (), **detail: object
) -> Finding:
    """The finding about a refusal that ends a run at a line; the line and text of `origin` made the culprit."""
    builder = RecordingBuilder(meta=TORCH)
    line, text = origin or (0, "")
    builder.refusal(
        RefusalKind[kind.upper()], error, message, operator=operator, start_ns=0, detail=detail,
        site=builder.site("train.py", 12, "main", source),
        origin=builder.site("train.py", int(str(line)), "main", str(text)) if origin else 0,
    )  # fmt: skip
    return only(builder.close())


@pytest.mark.parametrize(("source", "given", "expected"), cases("refusals.txt"))
def test_what_a_refusal_is_told_as(source: str, given: str, expected: str) -> None:
    """At the line that raised, as an error, with the line that made the culprit where it is known."""
    assert told(refused, source, given) == expected


def test_where_a_refusal_is_told() -> None:
    """At the line that raised, as an error; the line that made the culprit stands beside it."""
    details = {"name": "x", "expression": "torch.zeros(3)", "origin": (5, "x = torch.zeros(3)")}
    finding = refused("y = x + z", kind="device", error="RuntimeError", message="no", operator="aten::add", **details)
    assert (finding.severity, finding.site.line, [site.line for site in finding.related_sites]) == (
        Severity.ERROR,
        12,
        [5],
    )


def test_same_refusal_at_one_line_is_one_finding() -> None:
    """A refusal that the script catches and repeats is one finding with a count."""
    builder = RecordingBuilder(meta=TORCH)
    line = builder.site("train.py", 3)
    for time in range(4):
        builder.refusal(RefusalKind.MISSING, "NotImplementedError", "", operator="aten::mode", start_ns=time, site=line)
    assert only(builder.close()).count == 4


def test_tensor_that_was_moved_for_cuda_alone() -> None:
    """MPS401: `is_cuda` is False on mps, and the line above that would have moved it did not run."""
    text = "import torch\nnoise = draw()\nif logits.is_cuda:\n    noise = noise.cuda()\ny = logits + Variable(noise)\n"
    builder = RecordingBuilder(meta=TORCH)
    site = builder.site("train.py", 5, "main", "y = logits + Variable(noise)", text=text)
    builder.refusal(RefusalKind.DEVICE, "RuntimeError", "no", operator="aten::add.Tensor", start_ns=0, site=site)
    assert only(builder.close()).fix == (
        "`logits.is_cuda` in line 3 is False on mps: write `logits.is_cuda or logits.is_mps` there, and "
        "`.to(logits.device)` for `.cuda()` below it."
    )


@pytest.mark.parametrize(
    ("suite", "own"),
    [({"own": ["tests", "monai"]}, True), ({"own": ["nnunet"]}, False), ({}, False)],
)
def test_a_package_of_ones_own(suite: dict[str, object], own: bool) -> None:
    """The line of a package that the suite's project makes is the one to change, also where it is installed."""
    builder = RecordingBuilder(meta={**META, "suite": suite})
    builder.refusal(
        RefusalKind.FLOAT64, "TypeError", "no", operator="aten::_to_copy", start_ns=0,
        site=builder.site("/v/site-packages/monai/losses.py", 7, "loss", "x = x.double()"),
        detail={"caller": "test_losses.py:119"},
    )  # fmt: skip
    finding = only(builder.close())
    call = "The line is in the package monai: change the call at test_losses.py:119. "
    assert (finding.caller, finding.fix.startswith(call)) == ("test_losses.py:119", not own)


def test_which_rules_are_about_a_call_that_raised() -> None:
    """A suite that expects a test to fail expects these; a wait or a warning is none of them."""
    assert sorted(name for name, rule in RULES.items() if rule.refusal) == [
        "MPS101", "MPS104", "MPS105", "MPS106", "MPS107", "MPS301", "MPS302", "MPS303", "MPS304",
        "MPS401", "MPS402", "MPS407", "MPS410", "MPS501", "MPS504",
    ]  # fmt: skip
    text = "The operator 'aten::heaviside.out' is not currently implemented for the MPS device."
    finding = refused("y = f(x)", kind="missing", error="NotImplementedError", message=text, operator="aten::heaviside")
    assert is_refusal(finding)


if __name__ == "__main__":
    rewrite("refusals.txt", refused)
