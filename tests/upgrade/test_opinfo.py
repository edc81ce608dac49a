"""The table against torch's own lists: what a Mac runs is refused by no call, and what it refuses is by some.

Each release is asked where it is installed, by the table of releases, not by what the recording saw.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from conformance.test_slice import SLICE

pytestmark = pytest.mark.filterwarnings("ignore")

_SAMPLES = 3
FIDELITY = Path(__file__).parents[2] / "docs" / "fidelity"


@pytest.fixture(scope="module")
def expectations(virtual_device: Any) -> Any:
    """Torch's lists; needs a device that is there when they are imported."""
    from conformance.expectations import Expectations

    return Expectations()


def known(release: tuple[int, int]) -> set[tuple[str, str]]:
    """What the device computes although torch's lists refuse it, by operator and dtype: docs/fidelity has them."""
    numbers = json.loads((FIDELITY / "torch-{}.{}.json".format(*release)).read_text(encoding="utf-8"))
    rows = numbers["disagreements"]
    return {(name, dtype) for _, name, dtypes, expected, *_ in rows if expected == "refuses" for dtype in dtypes}


def disagreements(expectations: Any, names: set[str]) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    """The pairs of operator and dtype that the table gets wrong, and how many it was asked of each expectation.

    Of what the lists refuse, a pair agrees too if an argument, torch itself or a known bug is the reason: the table of
    releases has dtypes.
    """
    import torch

    import anymps
    from anymps.record import RefusalKind
    from anymps.rules import parse_torch_version
    from anymps.upgrade import Outcome, call_answer
    from conformance import checks
    from conformance.expectations import REFUSES, RUNS, TESTED

    release = parse_torch_version(torch.__version__).release
    wrong, asked, excused = [], {RUNS: 0, REFUSES: 0}, known(release)
    for index, op in enumerate(expectations.operators):
        if op.full_name not in names:
            continue
        for dtype in TESTED:
            name = str(dtype).removeprefix("torch.")
            expected, on_cpu = (getattr(expectations.forward(index, dtype), field) for field in ("what", "on_cpu"))
            if (expected != RUNS and (expected != REFUSES or not on_cpu)) or (op.full_name, name) in excused:
                continue  # what the CPU refuses, too, no table has
            ended = False
            with anymps.record() as capture, suppress(Exception):
                for sample in islice(op.sample_inputs("mps:0", dtype), None if expected == REFUSES else _SAMPLES):
                    checks._calls(op, sample)[0]()
                ended = True
            recording = capture.recording
            answers = {
                call_answer(signature.operator, signature.inputs[0].partition("[")[0], release).outcome
                for signature, _ in recording.distinct_calls()
                if signature.operator.startswith("aten::") and signature.inputs
            }
            refusals = recording.refusals()
            answers |= {call_answer(refused.operator, name, release).outcome for refused in refusals}
            by_dtype = any(refused.kind in (RefusalKind.DTYPE, RefusalKind.MISSING) for refused in refusals)
            other = bool(recording.hazards()) or (not ended and not by_dtype)
            asked[expected] += 1
            if (Outcome.REFUSED in answers) != (expected == REFUSES) and not (other and expected == REFUSES):
                wrong.append((op.full_name, name, expected))
    return wrong, asked


def test_a_slice_of_the_operators(expectations: Any) -> None:
    """One operator for each mechanism: kernels, a fallback, refused dtypes."""
    wrong, asked = disagreements(expectations, set(SLICE))
    assert wrong == []
    assert min(asked.values()) > 5
