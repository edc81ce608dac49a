"""What a recording says of models that nobody here wrote: whole steps, their phases, and what MPS refused."""

from __future__ import annotations

import inspect

import pytest
import torch

import anymps
from anymps.record import Phase, RefusalKind, Wait
from integration.models import CASES, LACKING, Case, Lacking, train

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("virtual_device"),
    # The libraries' own business.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
LINES, FIRST = inspect.getsourcelines(train)
LOSS_READ = inspect.getfile(train), FIRST + next(at for at, line in enumerate(LINES) if "loss.item()" in line)
"""The file and the line of `train` that waits for the device."""


def require(case: Case) -> None:
    """Skips the test without the model's package, saying what brings it."""
    if case.package:
        pytest.importorskip(case.package, reason=f"{case.package} is missing; the `integration` extra brings it")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_recorded_step_is_whole(case: Case) -> None:
    """Three steps with operators in forward, backward and optimizer, one wait for the loss, and nothing refused."""
    require(case)
    built = case()
    with anymps.record() as capture:
        recorded, _ = train(built, "mps", "adamw")
    recording = capture.recording
    assert recording.complete_steps == 3
    assert recording.dropped == 0
    assert recording.fallbacks() == recording.refusals() == ()
    shares = {share.phase: share for share in recording.step_table().mean}
    assert min(shares[phase].on_mps for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)) > 0
    assert shares[Phase.OPTIMIZER].waits == 0
    (read,) = (wait for wait in recording.waits() if (wait.site.file, wait.site.line) == LOSS_READ)
    assert (read.wait, read.count, read.per_step, read.phases) == (Wait.ITEM, 3, 1.0, (Phase.LOSS_READ,))
    assert train(built, "mps", "adamw")[0] == recorded


@pytest.mark.parametrize("lacking", LACKING.values(), ids=LACKING)
def test_a_missing_operator_is_in_the_recording(lacking: Lacking) -> None:
    """The refusal keeps the operator and the text that the script saw; the step that it ended is not complete."""
    require(lacking.case)
    if lacking.native_since is not None and lacking.native_since <= RELEASE:
        pytest.skip(f"this torch has a kernel for {lacking.operator}")
    with anymps.record() as capture, pytest.raises(NotImplementedError) as raised:
        train(lacking.case(), "mps", "adamw")
    (refusal,) = capture.recording.refusals()
    assert (refusal.kind, refusal.operator) == (RefusalKind.MISSING, lacking.operator)
    assert (refusal.error, refusal.message) == ("NotImplementedError", str(raised.value))
    assert capture.recording.complete_steps == 0
