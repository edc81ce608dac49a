"""Joining the recordings of several processes: what adds up, what stays apart, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps import RecordingError
from anymps.findings import Story
from anymps.findings.rules._mps811_optimizer import optimizer_calls
from anymps.record import (
    Direction,
    Fate,
    Flag,
    Part,
    Recording,
    RecordingBuilder,
    RecordingWriter,
    RefusalKind,
    RoundKind,
    Step,
    Wait,
    join,
)
from anymps.report._words import environment, not_modelled

META: dict[str, object] = {"torch_version": "2.13.0", "mac": "M1 8GB", "environment": {"PYTORCH_X": "1"}}


def joined(*recordings: Recording) -> Recording:
    """All of them in memory, with the names `gw0`, `gw1`, ..."""
    with RecordingWriter.in_memory() as writer:
        join(((f"gw{number}", recording) for number, recording in enumerate(recordings)), writer)
    return writer.recording()


def worker(line: int = 3, **meta: object) -> Recording:
    """One step of 100 ns: two kernels, a read of the second, a refusal; then a call that no step ends."""
    builder = RecordingBuilder(meta={**META, **meta})
    builder.site("only_here.py", line, "f", f"line {line}")
    shared = builder.site("lib.py", 7, "read", "x.item()")
    block = builder.module("block", "Block")
    for start in (10, 20):
        builder.entry("aten::mul", start_ns=start, duration_ns=5, site=shared, module=block, sequence=start)
    builder.entry("aten::item", start_ns=30, duration_ns=8, fate=Fate.WAIT, wait=Wait.ITEM, site=shared, sequence=20)
    builder.refusal(
        RefusalKind.FLOAT64, "TypeError", "no", operator="aten::to", start_ns=50, site=shared, origin=1,
        detail={"event": 1, "name": "x"},
    )  # fmt: skip
    builder.end_step(100)
    builder.entry("aten::add", start_ns=120, duration_ns=5, thread=1)
    return builder.close()


def test_counts_add_up() -> None:
    """What is the same in all processes is there once, with the counts of all."""
    whole = joined(worker(), worker(line=4))
    assert {operator.name: operator.count for operator in whole.operators()} == {
        "aten::mul": 4, "aten::item": 2, "aten::to": 2, "aten::add": 2,
    }  # fmt: skip
    assert [(wait.operator, wait.count, wait.site.line, wait.modules) for wait in whole.waits()] == [
        ("aten::item", 2, 7, ())
    ]
    assert (whole.entry_count, whole.dropped, whole.complete) == (10, 0, True)
    assert [(line.file, line.line, line.on_mps, line.waits, line.refused) for line in whole.lines()] == [
        ("lib.py", 7, 4, 2, 2),
        ("", 0, 2, 0, 0),
    ]


def test_each_process_keeps_its_own() -> None:
    """Steps, threads, clocks, autograd nodes and refusals of one process come after those of the process before."""
    whole = joined(worker(), worker(line=4))
    assert whole.steps() == (Step(0, 0, 100), Step(2, 126, 226))
    assert whole.parts == (Part("gw0", 0, True), Part("gw1", 126, True))
    calls = [(call.start_ns, call.step, call.thread, call.sequence) for call in whole.calls()]
    assert calls == [
        (10, 0, 0, 10), (20, 0, 0, 20), (30, 0, 0, 20), (50, 0, 0, -1), (120, 1, 1, -1),
        (136, 2, 2, 31), (146, 2, 2, 41), (156, 2, 2, 41), (176, 2, 2, -1), (246, 3, 3, -1),
    ]  # fmt: skip
    assert [(refusal.operator, refusal.error, refusal.origin.line, refusal.detail) for refusal in whole.refusals()] == [
        ("aten::to", "TypeError", 3, {"event": 1, "name": "x"}),
        ("aten::to", "TypeError", 4, {"event": 1, "name": "x"}),
    ]


def test_the_card_of_each_process() -> None:
    """Ranks on several NVIDIA GPUs, or on one: a report tells which computed for whom."""
    h100 = "NVIDIA H100 80GB HBM3"
    apart = joined(*(worker(card=f"cuda:{number % 2}, {h100}", virtual=True) for number in range(3)))
    assert [part.card for part in apart.parts] == [f"cuda:{number}, {h100}" for number in (0, 1, 0)]
    assert dict(environment(Story.of(apart)))["device"] == (
        f"virtual: computed on cuda:0, {h100} (gw0, gw2), on cuda:1, {h100} (gw1) by the rules of MPS"
    )
    shared = joined(*(worker(card=f"cuda:0, {h100}", virtual=True) for _ in range(3)))
    assert dict(environment(Story.of(shared)))["device"] == f"virtual: computed on cuda:0, {h100} by the rules of MPS"
    plain = joined(worker(virtual=True), worker(virtual=True))
    queued = "The time of the GPU: a call here takes as long as the host needs to queue it for the NVIDIA GPU."
    assert [queued in not_modelled(recording.run) for recording in (apart, shared, plain)] == [True, True, False]
    assert dict(environment(Story.of(plain)))["device"] == "virtual: computed on this machine by the rules of MPS"


def test_queues_end_with_their_process() -> None:
    """What a process had queued when it ended is not what the first wait of the next one waited for."""

    def process() -> Recording:
        builder = RecordingBuilder()
        line = builder.site("lib.py", 7)
        for start in (0, 100):
            builder.entry("aten::mul", start_ns=start, duration_ns=5)
            builder.entry("aten::item", start_ns=start + 10, fate=Fate.WAIT, wait=Wait.ITEM, site=line)
            builder.end_step(start + 50)
        builder.entry("aten::add", start_ns=200, duration_ns=5)
        return builder.close()

    (queue,) = joined(process(), process()).queues()
    assert (queue.count, queue.measured, queue.most_operators) == (4, 2, 1)


def test_marks_keep_their_lines() -> None:
    """The other lines of marks are those of the whole, whatever their numbers were."""

    def marks(*before: str) -> Recording:
        builder = RecordingBuilder()
        for file in before:
            builder.site(file, 1)
        here, copy, wait = (builder.site("lib.py", line) for line in (1, 2, 3))
        builder.note("round_trip", start_ns=1, site=here, other=copy)
        builder.entry(
            "anymps::copy.MPS701 aten::add_", start_ns=2, fate=Fate.MARK, site=here, flags=Flag.UNSAFE_COPY,
            sequence=wait << 32 | copy,
        )  # fmt: skip
        return builder.close()

    whole = joined(marks(), marks("a.py", "b.py"))
    assert [(noted.occurrence.count, noted.other.line) for noted in whole.noted("round_trip")] == [(2, 2)]
    assert [(unsafe.copy.line, unsafe.wait.line, unsafe.count) for unsafe in whole.unsafe_copies()] == [(2, 3, 2)]


def test_memory_is_that_of_one_process_at_a_time() -> None:
    """Buffers go with their process, so the peak is that of the largest one; earlier buffers stay in its counters."""

    def process(kept: int, before: int = 0) -> Recording:
        builder = RecordingBuilder()
        builder.allocation(kept, "aten::empty", time_ns=5, allocated=kept + before, reserved=1000)
        passing = builder.allocation(10, time_ns=6, allocated=kept + before + 10)
        builder.free(passing, time_ns=7)
        return builder.close()

    story = joined(process(100), process(60, before=20), process(300)).memory_story
    assert story.peak is not None
    assert (story.peak.allocated, story.peak.step) == (310, 2)
    assert sorted((allocation.bytes, allocation.born, allocation.died) for allocation in story.allocations) == [
        (10, 2, 3), (10, 6, 7), (10, 10, 11), (60, 5, 8), (100, 1, 4), (300, 9, None),
    ]  # fmt: skip
    second = story.at(6)
    assert (second.allocated, [allocation.bytes for allocation in second.alive]) == (90, [60, 10])


def test_events_go_on_where_the_last_was() -> None:
    """Whether it was a birth or a death: the event at which a refusal came is that of the whole."""

    def process(ends: bool) -> Recording:
        builder = RecordingBuilder()
        kept = builder.allocation(100, "aten::empty", time_ns=1)
        if ends:
            builder.free(kept, time_ns=2)
        builder.refusal(
            RefusalKind.MEMORY, "RuntimeError", "no", operator="aten::empty", start_ns=3, detail={"event": 2}
        )
        return builder.close()

    dead, alive = (joined(process(ends), process(ends)) for ends in (True, False))
    lives = [[(one.born, one.died) for one in whole.memory_story.allocations] for whole in (dead, alive)]
    assert lives == [[(1, 2), (3, 4)], [(1, 2), (3, None)]]
    events = [[refusal.detail["event"] for refusal in whole.refusals()] for whole in (dead, alive)]
    assert events == [[2, 4], [2, 4]]


def test_the_tests_of_shards_add_up() -> None:
    """Numbers are summed, what all say is kept, and what several expect is there once."""

    def shard(**suite: object) -> Recording:
        return RecordingBuilder(meta={**META, "suite": {"name": "tests", "strict": True, **suite}}).close()

    rows = [{"file": "test_a.py", "line": 1, "why": "fails"}, {"file": "test_b.py", "line": 2, "why": "waits"}]
    whole = joined(shard(passed=3, failed=1, folder="a", expected=rows), shard(passed=4, folder="b", expected=rows[1:]))
    assert whole.meta["suite"] == {
        "name": "tests", "strict": True, "passed": 7, "failed": 1, "expected": rows,
    }  # fmt: skip


def test_nodes_are_renumbered_and_only_they() -> None:
    """Marks hold lines and large numbers hold something else: neither moves the nodes of the next process."""

    def process() -> Recording:
        builder = RecordingBuilder()
        line = builder.site("lib.py", 1)
        builder.note("round_trip", start_ns=1, site=line, other=line)
        builder.entry("aten::view", start_ns=2, flags=Flag.VIEW, sequence=7)
        builder.entry("aten::mul", start_ns=3, flags=Flag.VIEW, sequence=1 << 60)
        builder.entry("aten::add", start_ns=4)
        return builder.close()

    sequences = [call.sequence for call in joined(process(), process()).calls()]
    assert [number for number in sequences if number not in (1,)] == [7, 1 << 60, -1, 15, 1 << 60, -1]


def test_facts() -> None:
    """Facts in common stay; the others are of each process, or say what holds for the whole."""
    own = (
        {"process": 8, "started": "2026-01-01T10:00", "wall_seconds": 2.0, "ending": {"status": 0}},
        {"process": 9, "started": "2026-01-01T09:00", "wall_seconds": 3.5, "ending": {"status": 1}},
    )
    first = worker(**own[0], script="pytest")
    second = worker(**own[1], script="other", environment={"PYTORCH_X": "1", "PYTORCH_Y": "2"})
    meta = joined(first, second).meta
    parts = [
        {"name": "gw0", "begin_ns": 0, "complete": True, **own[0]},
        {"name": "gw1", "begin_ns": 126, "complete": True, **own[1]},
    ]
    assert meta == {
        **META, "schema_version": 3, "complete": True, "started": "2026-01-01T09:00", "wall_seconds": 5.5,
        "ending": {"status": 1}, "allocations_dropped": False, "parts": parts,
    }  # fmt: skip


def test_a_killed_process_is_in_as_far_as_it_reached(tmp_path: Path) -> None:
    """Its calls count although it left no totals, and the whole says that it is not complete."""
    builder = RecordingBuilder(RecordingWriter(tmp_path / "killed", META))
    builder.entry("aten::mul", start_ns=10, duration_ns=5, direction=Direction.MPS_TO_MPS)
    builder.flush()
    whole = joined(Recording.open(tmp_path / "killed"), worker())
    assert [part.complete for part in whole.parts] == [False, True]
    assert not whole.complete
    assert {operator.name: operator.count for operator in whole.operators()}["aten::mul"] == 3


def test_totals_of_calls_without_detail() -> None:
    """Calls that were only counted are counted in the whole."""
    writer = RecordingWriter.in_memory()
    builder = RecordingBuilder(writer)
    builder.entry("aten::mul", start_ns=10, duration_ns=5)
    writer.add("totals", [(1, 0, 0, 0, 0, 0, 50, 250, 0)])
    whole = joined(builder.close(), worker())
    assert (whole.entry_count, whole.dropped) == (55, 49)
    assert {operator.name: (operator.count, operator.duration_ns) for operator in whole.operators()}["aten::mul"] == (
        52,
        260,
    )


def test_nothing_to_join() -> None:
    """No process at all gives a recording without calls."""
    whole = joined()
    assert (whole.entry_count, whole.parts, whole.complete) == (0, (), True)


def test_a_list_of_processes_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    """What no version of the format wrote is damage, in one line."""
    with RecordingWriter(tmp_path / "bad", {"parts": [{"name": "gw0"}]}):
        pass
    with pytest.raises(RecordingError) as caught:
        Recording.open(tmp_path / "bad")
    assert str(caught.value) == (
        f"{tmp_path}/bad is damaged (meta 'parts' is invalid): record again, or use an intact copy"
    )


def test_steps_are_those_of_the_processes() -> None:
    """Lines that repeat in a joined training are no rounds of an inference; its optimizers keep their lines."""

    def training(steps: int) -> Recording:
        writer = RecordingWriter.in_memory({**META, "rounds": True})
        builder = RecordingBuilder(writer)
        first, second, step = (builder.site("train.py", line, "main") for line in (3, 4, 5))
        for number in range(steps):
            start = 100 * number
            builder.entry("aten::mul", start_ns=start + 10, duration_ns=5, site=first)
            builder.entry("aten::add", start_ns=start + 30, duration_ns=5, site=second)
            writer.add("rounds", [(RoundKind.OPTIMIZER, 1, step, start + 50, start + 90)])
            builder.end_step(start + 90)
        return builder.close()

    whole = joined(training(2), training(3))
    assert [(each_step.step, each_step.end_ns) for each_step in whole.steps()] == [
        (0, 90),
        (1, 190),
        (2, 281),
        (3, 381),
        (4, 481),
    ]
    assert whole.trains
    assert optimizer_calls(whole) == {("train.py", 5): 5}


def test_a_joined_inference_is_one() -> None:
    """The process that started the others and has no steps does not make it a training; one that trains does."""

    def rounds(**meta: object) -> Recording:
        builder = RecordingBuilder(meta={**META, **meta})
        for start in (0, 100):
            builder.entry("aten::mul", start_ns=start, duration_ns=5)
            builder.end_step(start + 50)
        return builder.close()

    launcher = RecordingBuilder(meta=META).close()
    assert not joined(launcher, rounds(loop="inference"), rounds(loop="inference")).trains
    assert joined(rounds(loop="inference"), rounds()).trains
