"""The table against torch's own lists: what a Mac runs is refused by no call, and what it refuses is by some.

Each release is asked where it is installed, by the table of releases, not by what the recording saw.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from conformance.test_slice import SLICE

pytestmark = pytest.mark.filterwarnings("ignore")

_SAMPLES = 3


@pytest.fixture(scope="module")
def expectations(virtual_device: Any) -> Any:
    """Torch's lists; needs a device that is there when they are imported."""
    from conformance.expectations import Expectations

    return Expectations()


def disagreements(expectations: Any, names: set[str] | None) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    """The pairs of operator and dtype that the table gets wrong, and how many it was asked of each expectation."""
    import torch

    import anymps
    from anymps.record import RefusalKind
    from anymps.rules import parse_torch_version
    from anymps.upgrade import Outcome, call_answer
    from conformance import checks
    from conformance.expectations import REFUSES, RUNS, TESTED

    release = parse_torch_version(torch.__version__).release
    wrong, asked = [], {RUNS: 0, REFUSES: 0}
    for index, op in enumerate(expectations.operators):
        if names is not None and op.full_name not in names:
            continue
        for dtype in TESTED:
            expected, on_cpu = (getattr(expectations.forward(index, dtype), field) for field in ("what", "on_cpu"))
            if expected != RUNS and (expected != REFUSES or not on_cpu):
                continue  # what the CPU refuses, too, no table has
            with anymps.record() as capture, suppress(Exception):  # of a refusal, the recording tells
                for sample in islice(op.sample_inputs("mps:0", dtype), None if expected == REFUSES else _SAMPLES):
                    checks._calls(op, sample)[0]()
            recording = capture.recording
            name = str(dtype).removeprefix("torch.")
            answers = {
                call_answer(signature.operator, signature.inputs[0].partition("[")[0], release).outcome
                for signature, _ in recording.distinct_calls()
                if signature.operator.startswith("aten::") and signature.inputs
            }
            answers |= {call_answer(refused.operator, name, release).outcome for refused in recording.refusals()}
            by_value = any(
                refused.kind is not RefusalKind.DTYPE and refused.kind is not RefusalKind.MISSING
                for refused in recording.refusals()
            )  # an argument, or a tensor that is none on mps: no matter of the operator
            refused = Outcome.REFUSED in answers
            asked[expected] += 1
            if refused != (expected == REFUSES) and not (by_value and expected == REFUSES):
                wrong.append((op.full_name, name, expected))
    return wrong, asked


def test_a_slice_of_the_operators(expectations: Any) -> None:
    """One operator for each mechanism: kernels, a fallback, refused dtypes."""
    wrong, asked = disagreements(expectations, set(SLICE))
    assert wrong == []
    assert min(asked.values()) > 5


@pytest.mark.slow
def test_every_operator(expectations: Any) -> None:
    """All of torch's database."""
    assert disagreements(expectations, None)[0] == []
