"""The finding about a wait that a line makes in every step."""

from __future__ import annotations

from anymps.findings import Finding, find
from anymps.record import Fate, Phase, RecordingBuilder, Wait


def advice(
    source: str,
    wait: Wait = Wait.ITEM,
    *,
    via: str = "",
    phase: Phase = Phase.LOSS_READ,
    operator: str = "aten::_local_scalar_dense",
    file: str = "train.py",
    around: str = "",
) -> Finding:
    """The finding about a line that waits in each of five steps; it is the third of the lines `around`."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    line = builder.site(file, 22, "main", source, via, text="\n" * 19 + around)
    fate = Fate.FALLBACK if wait is Wait.FALLBACK else Fate.NATIVE
    for step in range(5):
        builder.entry(operator, start_ns=100 * step, duration_ns=10, fate=fate, phase=phase, site=line, wait=wait)
        builder.end_step(100 * step + 100)
    (finding,) = find(builder.close())
    return finding
