"""When things happened, as drawings and traces ask a recording: steps in short, one step on tracks, calls, memory."""

from __future__ import annotations

import pytest

from anymps import RecordingError
from anymps.record import Call, Fate, Flag, Phase, Recording, RecordingBuilder, Step, StepSum, Wait
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
    """Each complete step with its length, waits and fallbacks."""
    assert small().step_sums() == tuple(StepSum(step, 1_000_000, 2, 1) for step in range(3))


def test_tracks_of_a_step() -> None:
    """Phases fill the step without gaps; kernels, fallbacks and waits lie where they were."""
    recording = small()
    step = recording.typical_step()
    assert step == Step(1, 1_000_000, 2_000_000)
    line = recording.timeline(step)
    start = step.start_ns
    phases = [(span.phase.label, span.start_ns - start, span.end_ns - start, span.count) for span in line.phases]
    assert phases == [
        ("batch", 0, 50_000, 1),
        ("forward", 50_000, 300_000, 2),
        ("backward", 300_000, 600_000, 1),
        ("optimizer", 600_000, 725_000, 1),
        ("loss read", 725_000, 1_000_000, 1),
    ]
    kernels = [(span.operator, span.start_ns - start, span.end_ns - start) for span in line.on_mps]
    assert kernels == [
        ("aten::relu", 100_000, 150_000),
        ("aten::threshold_backward", 400_000, 600_000),
        ("aten::_fused_adamw_", 700_000, 725_000),
        ("aten::_local_scalar_dense", 800_000, 825_000),
    ]
    assert [(span.operator, span.site.line) for span in line.on_cpu] == [("aten::heaviside.out", 19)]
    assert [(span.wait, span.site.line) for span in line.waits] == [(Wait.FALLBACK, 19), (Wait.ITEM, 36)]


def test_a_phase_that_took_no_time_is_not_drawn() -> None:
    """Unless it is the first, which the time before it belongs to."""
    builder = RecordingBuilder()
    builder.entry("aten::relu", start_ns=0, duration_ns=0, phase=Phase.FORWARD)
    builder.entry("aten::mul", start_ns=10, duration_ns=30, phase=Phase.BACKWARD)
    builder.entry("anymps::batch", start_ns=40, duration_ns=0, phase=Phase.BATCH, fate=Fate.MARK)
    builder.entry("aten::add", start_ns=50, duration_ns=30, phase=Phase.OPTIMIZER)
    builder.end_step(100)
    recording = builder.close()
    line = recording.timeline(recording.steps()[0])
    assert [(span.phase, span.start_ns, span.end_ns) for span in line.phases] == [
        (Phase.FORWARD, 0, 0),
        (Phase.BACKWARD, 0, 40),
        (Phase.OPTIMIZER, 40, 100),
    ]


def test_near_calls_are_one_span() -> None:
    """What lies closer than the resolution is one span that counts its calls and is named after the longest."""
    builder = RecordingBuilder()
    for number in range(1000):
        builder.entry(f"aten::op{number}", start_ns=number * 10, duration_ns=9 if number == 700 else 5)
    builder.entry("aten::view", start_ns=20_000, duration_ns=100, flags=Flag.VIEW)
    builder.entry("aten::late", start_ns=50_000, duration_ns=100_000)
    builder.end_step(100_000)
    recording = builder.close()
    step = recording.typical_step()
    assert step is not None
    first, second = recording.timeline(step, resolution=100).on_mps
    assert (first.start_ns, first.end_ns, first.count) == (0, 9_995, 1000)
    assert (second.start_ns, second.end_ns, second.operator) == (50_000, 100_000, "aten::late")


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


def test_calls_in_brief_are_the_calls() -> None:
    """They say what the calls say, in the same order, and each number of a kind can be taken out of it."""
    builder = RecordingBuilder()
    line, block = builder.site("train.py", 7, "main", "x.relu()"), builder.module("block", "Block")
    builder.entry(
        "aten::relu", start_ns=50, duration_ns=5, site=line, module=block, thread=70_000, phase=Phase.OPTIMIZER,
        wait=Wait.INSIDE_OPERATOR, flags=Flag.PAIR | Flag.RAISED, moved_bytes=12,
    )  # fmt: skip
    builder.entry("aten::mm", start_ns=20, fate=Fate.FALLBACK, phase=Phase.BACKWARD, sequence=3)
    recording = builder.close()
    told = [
        (start, length, signature, module, site, kind >> 16 & 0xFF, step, kind >> 24, kind >> 8 & 0xFF, 0, kind & 0xFF,
         moved, sequence)
        for start, length, signature, site, module, kind, step, moved, sequence in recording.calls_in_brief()
    ]  # fmt: skip
    assert told == list(recording.calls())
    assert told[1][5:11] == (Phase.OPTIMIZER, 0, 70_000, Wait.INSIDE_OPERATOR, 0, Flag.PAIR | Flag.RAISED)


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
