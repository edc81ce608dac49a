"""Training loops made by hand for the rules: what a test adds to each step, and the findings of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anymps.findings import Finding, find
from anymps.record import Flag, Phase, Recording, RecordingBuilder

META: dict[str, object] = {"torch_version": "2.13.0+cpu", "mac": "M3 Pro 18GB"}
STEP = 1_000_000
LIBRARY = "/opt/lib/python3.11/site-packages/trainer/loop.py"

OPTIMIZER: dict[str, object] = {
    "name": "AdamW", "torch": True, "tensors": 10, "on_mps": 10, "dtypes": ["float32"], "fused": ["None"],
    "foreach": ["None"], "differentiable": ["False"], "eps": ["1e-08"],
}  # fmt: skip

Extra = Callable[[RecordingBuilder, int, int], None]


def loop(extra: Extra, *, steps: int = 10, meta: Mapping[str, object] = META) -> Recording:
    """A training loop of two operators a step; `extra(builder, step, time)` adds to each step."""
    builder = RecordingBuilder(meta=meta)
    for step in range(steps):
        builder.entry("aten::addmm", start_ns=step * STEP + 1, phase=Phase.FORWARD)
        builder.entry("aten::mm", start_ns=step * STEP + 2, phase=Phase.BACKWARD, flags=Flag.AUTOGRAD_THREAD)
        extra(builder, step, step * STEP + 10)
        builder.end_step((step + 1) * STEP)
    return builder.close()


def once(
    what: str, *, file: str = "train.py", times: int = 1, meta: Mapping[str, object] = META, **facts: object
) -> Recording:
    """Ten steps, with a mark in the first ones."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step < times:
            builder.note(what, start_ns=time, site=builder.site(file, 7, "main", "the line"), **facts)

    return loop(extra, meta=meta)


def only(recording: Recording) -> Finding:
    """The one finding of a recording."""
    (finding,) = find(recording)
    return finding


def ids(recording: Recording) -> list[str]:
    """The ids of all findings."""
    return [finding.id for finding in find(recording)]
