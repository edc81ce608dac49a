"""Records what happens in a step on the virtual device, for the tapes of steps."""

from __future__ import annotations

from collections.abc import Callable

import torch

import anymps
from anymps.cost import Happening
from anymps.forecast._forecast import _speeds
from anymps.forecast._happenings import happenings
from anymps.record import RoundKind

WARM = 3  # steps before those that are recorded: the first one makes an optimizer's state
STEPS = 20  # recorded, of which the quietest gap of each place counts


def recorded(step: Callable[[], object], steps: int = STEPS, *, wait: bool = False) -> list[Happening]:
    """What happens in a step, called so often; with `wait`, each is followed by a wait for the device."""
    for _ in range(WARM):
        step()
    with anymps.record() as capture:
        for _ in range(steps):
            start = capture.core.clock_ns()
            step()
            if wait:
                torch.mps.synchronize()
            capture.core.note_round(int(RoundKind.CALLED), 0, start)
    recording = capture.recording
    typical = recording.typical_step()
    assert typical is not None
    return happenings(recording, typical, _speeds(recording, None)).happenings
