"""When things happened, as drawings ask a recording: steps in short, calls, memory."""

from __future__ import annotations

import pytest

from anymps import RecordingError
from anymps.record import Call, Fate, Phase, Recording, RecordingBuilder, StepSum, Wait
from recordings import small


def steps_of(*lengths: int) -> Recording:
    """Steps of these lengths in ns, with nothing in them."""
    builder = RecordingBuilder()
    clock = 0
    for length in lengths:
        clock += length
        builder.end_step(clock)
    return builder.close()


@pytest.mark.parametrize(
    ("lengths", "number"), [((), None), ((9,), 0), ((9, 5), 1), ((9, 5, 7, 6), 3), ((9, 5, 7, 6, 8), 3)]
)
def test_typical_step(lengths: tuple[int, ...], number: int | None) -> None:
    """The typical step is the one of median length, the first left out if there are others."""
    step = steps_of(*lengths).typical_step()
    assert (step.step if step else None) == number


def test_the_typical_step_waits_as_most_do() -> None:
    """A step that does something rare is not the typical one, whatever its length."""
    builder = RecordingBuilder()
    clock = 0
    for length, waits in ((90, 1), (10, 1), (30, 4), (30, 0), (40, 1), (50, 1)):
        for number in range(waits):
            builder.entry("aten::_local_scalar_dense", start_ns=clock + number, wait=Wait.ITEM)
        clock += length
        builder.end_step(clock)
    step = builder.close().typical_step()
    assert step is not None
    assert step.step == 4


def test_step_sums() -> None:
    """Each complete step with its length, waits, fallbacks and operators on mps."""
    assert small().step_sums() == tuple(StepSum(step, 1_000_000, 2, 1, 4) for step in range(3))


def test_calls_in_the_order_of_time() -> None:
    """Calls come one by one in the order of their start, with numbers that lead to names."""
    builder = RecordingBuilder()
    line = builder.site("train.py", 7, "main", "x.relu()")
    block = builder.module("block", "Block")
    builder.entry("aten::relu", start_ns=50, duration_ns=5, site=line, module=block, inputs=["float32[2]"])
    builder.entry("aten::mm", start_ns=20, fate=Fate.FALLBACK, phase=Phase.BACKWARD, sequence=3)
    recording = builder.close()
    calls = recording.calls()
    second, first = next(calls), next(calls)
    assert next(calls, None) is None
    assert second == Call(20, 0, second.signature, 0, 0, Phase.BACKWARD, 0, 0, 0, 0, 0, 0, 3)
    assert recording.signature(second.signature).fate is Fate.FALLBACK
    assert recording.signature(first.signature).inputs == ("float32[2]",)
    assert (recording.module(first.module), recording.site(first.site).line) == ("block", 7)
    recording.close()
    with pytest.raises(RecordingError, match=r"^the recording in memory was closed: open it again to read it$"):
        next(recording.calls())


def test_memory_keeps_its_peaks() -> None:
    """Samples are thinned out so that the highest of each span of time stays."""
    builder = RecordingBuilder()
    for moment in range(1000):
        builder.memory(moment, 1000 if moment == 555 else moment % 7, 2000)
    samples = builder.close().memory(resolution=10)
    assert len(samples) == 10
    assert max(sample.allocated_bytes for sample in samples) == 1000
    assert [sample.time_ns for sample in samples if sample.allocated_bytes == 1000] == [555]
    assert RecordingBuilder().close().memory() == ()
