"""The queue before each wait, on hand-made recordings: its numbers, what hurts, and what belongs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anymps.findings import RULES, Finding, Severity, Story, find
from anymps.record import (
    Direction,
    Fate,
    Flag,
    Phase,
    Recording,
    RecordingBuilder,
    RecordingWriter,
    StepQueue,
    Wait,
    WaitQueue,
)
from anymps.report import _words as words
from anymps.report import render_terminal
from anymps.report.document import Prose, Table
from anymps.report.run._waits import waits_section
from recordings import training

STEP = 1_000
Extra = Callable[[RecordingBuilder, int, int], None]


def section_of(recording: Recording, *findings: Finding) -> tuple[dict[str, Table], tuple[str, ...]]:
    """The tables of the section on waits, and its remarks."""
    (section,) = waits_section(Story.of(recording), findings)
    tables = {block.anchor: block for block in section.blocks if isinstance(block, Table)}
    remarks = [sentence for block in section.blocks if isinstance(block, Prose) for sentence in block.sentences]
    return tables, tuple(remarks)


def loop(*extras: Extra, steps: int = 6, forward: int = 4, tail: Extra | None = None) -> RecordingBuilder:
    """Steps of 1000 ns: `forward` operators of 20 ns every 50 ns from 100 on, then one optimizer operator at 800."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0", "virtual": True})
    line = builder.site("model.py", 7, "forward", "x = x.relu()")
    for step in range(steps):
        t = step * STEP
        for number in range(forward):
            builder.entry("aten::relu", start_ns=t + 100 + 50 * number, duration_ns=20, phase=Phase.FORWARD, site=line)
        builder.entry("aten::view", start_ns=t + 700, duration_ns=5, phase=Phase.FORWARD, flags=Flag.VIEW)
        builder.entry("aten::_fused_adamw_", start_ns=t + 800, duration_ns=40, phase=Phase.OPTIMIZER)
        for extra in extras:
            extra(builder, step, t)
        builder.end_step(t + STEP)
    if tail is not None:
        tail(builder, steps, steps * STEP)
    return builder


def waiting(
    line: int, kind: Wait, at: int, *, when: Callable[[int], bool] = lambda step: True, phase: Phase = Phase.LOSS_READ
) -> Extra:
    """A wait of 10 ns at a line, `at` ns into those steps."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if when(step):
            to_mps = kind is Wait.COPY_TO_MPS
            builder.entry(
                f"aten::{kind.name.lower()}", start_ns=time + at, duration_ns=10, wait=kind, phase=phase,
                fate=Fate.COPY if to_mps else Fate.FALLBACK if kind is Wait.FALLBACK else Fate.NATIVE,
                direction=Direction.CPU_TO_MPS if to_mps else Direction.NONE, moved_bytes=64 if to_mps else 4,
                site=builder.site("train.py", line, "main", f"line {line}"),
            )  # fmt: skip

    return extra


MOVE = waiting(10, Wait.COPY_TO_MPS, 50, phase=Phase.MOVE)
READ = waiting(20, Wait.ITEM, 400)
SHOW = waiting(30, Wait.COPY_TO_CPU, 900)


def told(recording: Recording) -> list[tuple[int, str, bool, str]]:
    """Line, kinds, whether it hurts, and why it belongs, for each place."""
    return [
        (place.site.line, ", ".join(kind.label for kind in place.kinds), place.hurts, place.reason)
        for place in Story.of(recording).waits
    ]


def test_numbers_of_a_queue() -> None:
    """Operators since the wait before, with the host's time between them and the work inside; views are no work."""
    recording = loop(MOVE, READ).close()
    move, read = recording.queues()
    assert read == WaitQueue(
        site=recording.queues()[1].site,
        wait=Wait.ITEM,
        phases=(Phase.LOSS_READ,),
        count=6,
        steps=6,
        per_step=1.0,
        first_step=0,
        last_step=5,
        moved_bytes=24,
        every=1,
        measured=5,
        operators=4,
        most_operators=4,
        host_ns=260.0,  # from 60 to 400, without four times 20
        work_ns=80.0,
    )
    assert read.site.line == 20
    assert (move.operators, move.work_ns, move.host_ns) == (1, 40.0, 600.0)


def test_median_and_most() -> None:
    """Two waits in a row at one line: the second finds an empty queue. Of two in the middle the lower is the median."""
    recording = loop(READ, waiting(20, Wait.ITEM, 420)).close()
    (read,) = recording.queues()
    assert (read.count, read.per_step, read.measured) == (12, 2.0, 10)
    assert (read.operators, read.most_operators) == (0, 5)


def test_the_first_step_is_left_out() -> None:
    """What set-up queues in the first step does not count for a place of the loop, and does for one of the set-up."""

    def set_up(builder: RecordingBuilder, step: int, time: int) -> None:
        if step == 0:
            for number in range(30):
                builder.entry("aten::normal_", start_ns=time + number, duration_ns=1)

    once = waiting(5, Wait.SYNCHRONIZE, 45, when=lambda step: step == 0)
    queues = {queue.site.line: queue for queue in loop(set_up, READ, once).close().queues()}
    assert (queues[5].measured, queues[5].most_operators) == (1, 30)
    assert (queues[20].measured, queues[20].most_operators) == (5, 5)


def test_what_comes_now_and_then_is_told_by_its_mean() -> None:
    """Over all steps but the first, whose waits are left out of it."""
    queues = loop(READ, waiting(30, Wait.COPY_TO_CPU, 900, when=lambda step: step in (0, 2))).close().queues()
    assert {queue.site.line: queue.per_step for queue in queues} == {20: 1.0, 30: 0.2}


def test_queues_of_one_step() -> None:
    """Each wait of a step with where its queue begins."""
    recording = loop(MOVE, READ).close()
    step = recording.steps()[2]
    queues = recording.step_queues(step)
    move, read = (queue.site for queue in queues)
    assert queues == (
        StepQueue(2, 2000, 2050, 2060, Wait.COPY_TO_MPS, move, 0, 50, 0),
        StepQueue(2, 2060, 2400, 2410, Wait.ITEM, read, 4, 260, 80),
    )


def test_lines_are_one_place_whatever_function_they_call() -> None:
    """Sites that differ in the torch function below are one place; kinds of wait stay apart."""
    builder = RecordingBuilder()
    for step in range(4):
        for number, (via, kind) in enumerate((("a", Wait.ITEM), ("b", Wait.ITEM), ("b", Wait.COPY_TO_CPU))):
            site = builder.site("train.py", 9, "main", "print(x)", via)
            builder.entry("aten::x", start_ns=100 * step + number, site=site, wait=kind)
        builder.end_step(100 * step + 100)
    recording = builder.close()
    assert [(queue.wait, queue.count) for queue in recording.queues()] == [(Wait.ITEM, 8), (Wait.COPY_TO_CPU, 4)]
    (place,) = Story.of(recording).waits
    assert (place.hurts, place.kinds, place.per_step) == (True, (Wait.ITEM, Wait.COPY_TO_CPU), 3.0)


def test_steps_without_detail_are_not_measured() -> None:
    """Where plain calls lost their detail, waits still count, and their queue is not told."""
    writer = RecordingWriter.in_memory({"virtual": True})
    builder = RecordingBuilder(writer)
    line = builder.site("train.py", 20, "main", "loss.item()")
    for step in range(6):
        t = step * STEP
        if step < 4:
            for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
                builder.entry("aten::mm", start_ns=t + 100 * phase, duration_ns=10, phase=phase)
        builder.entry("aten::_local_scalar_dense", start_ns=t + 900, site=line, wait=Wait.ITEM)
        builder.end_step(t + STEP)
    builder.flush()
    writer.add("totals", [(1, 0, 0, Phase.FORWARD, 0, 0, 100, 100, 0)])
    recording = builder.close()
    assert recording.dropped > 0
    (queue,) = recording.queues()
    assert (queue.count, queue.steps, queue.measured, queue.operators) == (6, 6, 2, 3)


def test_a_recording_without_waits() -> None:
    """No wait, no place; an empty recording neither."""
    assert loop().close().queues() == ()
    assert RecordingBuilder().close().queues() == ()
    assert Story.of(RecordingBuilder().close()).waits == ()


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (MOVE, "the loop's data on its way to the device"),
        (waiting(10, Wait.COPY_TO_MPS, 50, phase=Phase.FORWARD), "copied to the device"),
        (waiting(10, Wait.COPY_TO_MPS, 50, when=lambda step: step == 0), "at the start"),
        (waiting(10, Wait.ITEM, 50, when=lambda step: step == 0), "at the start"),
        (waiting(10, Wait.ITEM, 900, when=lambda step: step % 3 == 2), "in 2 of 6 steps"),
        (waiting(10, Wait.FALLBACK, 900, when=lambda step: step == 4), "in 1 of 6 steps"),
        (waiting(10, Wait.SYNCHRONIZE, 900, when=lambda step: step == 4), "in 1 of 6 steps"),
        (waiting(10, Wait.EMPTY_CACHE, 900, when=lambda step: step == 3), "in 1 of 6 steps"),
    ],
)
def test_waits_that_belong(extra: Extra, reason: str) -> None:
    """Set-up, the batch's way, a log every few steps and a validation between steps belong, and make no finding."""
    recording = loop(extra).close()
    (place,) = Story.of(recording).waits
    assert (place.hurts, place.reason) == (False, reason)
    assert [finding.id for finding in find(recording) if finding.severity is not Severity.INFO] == []


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((1, 6, 11), "every 5 steps"),
        ((0, 4, 8), "every 4 steps"),
        ((1, 6), "in 2 of 12 steps"),
        ((1, 2, 9), "in 3 of 12 steps"),
    ],
)
def test_what_comes_at_intervals_is_told_with_them(steps: tuple[int, ...], reason: str) -> None:
    """Three times make an interval if they are as far apart."""
    recording = loop(waiting(10, Wait.ITEM, 900, when=lambda step: step in steps), steps=12).close()
    assert told(recording) == [(10, "item", False, reason)]


@pytest.mark.parametrize(
    ("times", "typical", "count", "headline"),
    [
        (lambda step: 50 if step == 7 else 3, 3, 77, "3 waits in every step."),
        (lambda step: 1 + step, 6, 55, "6 waits in a typical step."),  # an LBFGS waits more often with each step
    ],
)
def test_an_odd_step_is_not_in_the_number_of_a_step(
    times: Callable[[int], int], typical: int, count: int, headline: str
) -> None:
    """Headline, finding and table have one number, that of a typical step, however much a rare one waits."""

    def sample(builder: RecordingBuilder, step: int, time: int) -> None:
        for number in range(times(step)):
            waiting(20, Wait.ITEM, 700 + number)(builder, step, time)

    recording = loop(sample, steps=10).close()
    (place,) = Story.of(recording).waits
    (finding,) = (each for each in find(recording) if each.id == "MPS201")
    assert (place.per_step, finding.per_step, finding.count) == (typical, typical, count)
    assert words.waits(Story.of(recording), [finding]) == headline


def test_an_odd_step_is_not_in_the_number_of_an_operator_on_the_cpu() -> None:
    """MPS102 and the step table have one number, that of a typical step."""

    def falls(builder: RecordingBuilder, step: int, time: int) -> None:
        line = builder.site("train.py", 20, "main", "x = torch.heaviside(x, v)")
        for number in range(50 if step == 7 else 2):
            builder.entry(
                "aten::heaviside.out", start_ns=time + 700 + number, duration_ns=1, fate=Fate.FALLBACK,
                phase=Phase.FORWARD, wait=Wait.FALLBACK, site=line,
            )  # fmt: skip

    recording = loop(falls, steps=10).close()
    (finding,) = (each for each in find(recording) if each.id == "MPS102")
    assert (finding.per_step, finding.count) == (2, 68)
    assert finding.what == "`aten::heaviside.out` ran on the CPU twice a step: 4 device switches a step."
    assert sum(share.on_cpu for share in recording.step_table().median) == 2
    sentence = "One of the 9 steps does more: 48 operators on the CPU and 48 waits beyond these numbers."
    assert sentence in " ".join(render_terminal(Story.of(recording), []).split())


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({5: 3, 10: 3, 15: 3}, "Every 5 steps, a step does more: up to 3 waits beyond these numbers."),
        ({5: 3, 6: 3}, "2 of 18 steps do more: up to 3 waits beyond these numbers."),
        ({5: 1, 10: 40, 15: 1}, "3 of 18 steps do more: up to 40 waits beyond these numbers."),
    ],
)
def test_the_table_tells_how_often_a_step_does_more(more: dict[int, int], sentence: str) -> None:
    """The table is of the typical step; the sentence below it tells the rest.

    A validation in one step beside a log of every fifth: their sum is not done every five steps.
    """

    def save(builder: RecordingBuilder, step: int, time: int) -> None:
        for number in range(more.get(step, 0)):
            builder.entry(
                "aten::_copy_from", start_ns=time + 800 + number, fate=Fate.COPY, phase=Phase.OTHER,
                wait=Wait.COPY_TO_CPU, direction=Direction.MPS_TO_CPU, moved_bytes=64,
            )  # fmt: skip

    recording = loop(READ, save, steps=19).close()
    assert sum(share.waits for share in recording.step_table().median) == 1
    assert sentence in " ".join(render_terminal(Story.of(recording), []).split())


def test_a_finding_about_something_rare_tells_how_often() -> None:
    """A fraction of a time in a step is no number that a reader can use."""

    def falls(builder: RecordingBuilder, step: int, time: int) -> None:
        if step % 5 == 2:
            builder.entry(
                "aten::heaviside.out", start_ns=time + 700, fate=Fate.FALLBACK, phase=Phase.FORWARD,
                wait=Wait.FALLBACK, site=builder.site("train.py", 20, "main", "x = torch.heaviside(x, v)"),
            )  # fmt: skip

    (finding,) = find(loop(falls, steps=21).close())
    assert finding.id == "MPS103"
    assert words.times(finding) == "4 in this run, about once in 5 steps"


def test_many_reads_in_a_validation_belong() -> None:
    """A validation that reads fifty times between two steps hurts none of them, and is a loop of its own."""

    def validate(builder: RecordingBuilder, step: int, time: int) -> None:
        if step == 3:
            for number in range(50):
                waiting(40, Wait.ITEM, 850 + number)(builder, step, time)

    recording = loop(validate).close()
    assert told(recording) == [(40, "item", False, "in 1 of 6 steps")]
    assert [finding.id for finding in find(recording)] == ["MPS207"]


LOG, LATE = waiting(50, Wait.ITEM, 10), waiting(20, Wait.ITEM, 10)


@pytest.mark.parametrize(
    ("recording", "place"),
    [
        (loop(tail=LOG), (50, "item", False, "after the last step")),
        (loop(steps=0, tail=LOG), (50, "item", False, "once")),
        (loop(READ, steps=2), (20, "item", False, "in 2 of 2 steps, too few to tell whether in every one")),
        (loop(LATE, steps=1, tail=LATE), (20, "item", False, "one complete step is too few to tell")),
        (loop(MOVE, steps=1), (10, "copy to mps", False, "in the only complete step, or before it")),
    ],
)
def test_too_few_steps_to_tell(recording: RecordingBuilder, place: tuple[int, str, bool, str]) -> None:
    """What is read after the loop belongs; two steps make no routine, and the only one holds the set-up too."""
    assert told(recording.close()) == [place]


def test_what_hurts_comes_first() -> None:
    """The costliest first, then what belongs; a line that does both stands in both."""
    both = waiting(20, Wait.COPY_TO_MPS, 20, phase=Phase.MOVE)
    recording = loop(MOVE, READ, SHOW, both).close()
    assert told(recording) == [
        (30, "copy to cpu", True, ""),
        (20, "item", True, ""),
        (10, "copy to mps", False, "the loop's data on its way to the device"),
        (20, "copy to mps", False, "the loop's data on its way to the device"),
    ]


@pytest.mark.parametrize(
    ("extras", "sentence"),
    [
        ([READ], "1 wait in every step."),
        ([READ, SHOW], "2 waits in every step."),
        ([MOVE, READ], "1 of a step's 2 waits is needless."),
        ([MOVE, waiting(20, Wait.ITEM, 180), waiting(21, Wait.ITEM, 280)], "2 of a step's 3 waits are needless."),
        ([MOVE], ""),
    ],
)
def test_needless_waits_in_words(extras: list[Extra], sentence: str) -> None:
    """How many of a typical step's, or of every step's where all are."""
    recording = loop(*extras).close()
    assert words.waits(Story.of(recording), find(recording)) == sentence


def test_an_action_for_an_environment_is_no_needless_wait() -> None:
    """The program has to have it there, so what the step could do without leaves it out."""

    def act(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("train.py", 25, "main", "obs, reward, *_ = env.step(action.cpu().numpy())")
        builder.entry(
            "aten::copy_", start_ns=time + 500, duration_ns=10, wait=Wait.COPY_TO_CPU, phase=Phase.OTHER,
            fate=Fate.COPY, direction=Direction.MPS_TO_CPU, moved_bytes=4, site=site,
        )  # fmt: skip

    recording = loop(act).close()
    findings = find(recording)
    assert [(place.hurts, place.needless) for place in Story.of(recording).waits] == [(True, False)]
    assert [finding.id for finding in findings] == ["MPS204"]
    assert words.waits(Story.of(recording), findings) == ""
    recording = loop(act, READ).close()
    assert words.waits(Story.of(recording), find(recording)) == "1 of a step's 2 waits is needless."


def test_the_verdict_leaves_out_what_was_left_out() -> None:
    """Findings that were selected away are not in the verdict either."""
    recording = training().close()
    assert words.verdict(Story.of(recording), find(recording))[1].endswith("2 of a step's 4 waits are needless.")
    assert words.verdict(Story.of(recording), [])[1] == "No findings."


def test_a_queue_that_is_not_known() -> None:
    """Where no call kept its detail, the table has a mark instead of numbers."""
    writer = RecordingWriter.in_memory({"virtual": True})
    builder = RecordingBuilder(writer)
    line = builder.site("train.py", 20, "main", "loss.item()")
    for step in range(4):
        builder.entry("aten::_local_scalar_dense", start_ns=step * STEP, site=line, wait=Wait.ITEM)
        builder.end_step(step * STEP + STEP)
    builder.flush()
    writer.add("totals", [(1, 0, 0, Phase.FORWARD, 0, 0, 100, 100, 0)])
    tables, _ = section_of(builder.close())
    assert tables["waits-hurting"].rows == (("train.py:20", "item", "1", "?", "?", "?", "100 to 450 us"),)


def test_many_places_that_belong() -> None:
    """Eight places that belong are told, the others only counted."""
    once = [waiting(100 + n, Wait.ITEM, 900 + n, when=lambda step: step == 2) for n in range(11)]
    tables, remarks = section_of(loop(*once).close())
    table = tables.pop("waits-belonging")
    assert (len(table.rows), table.rest, tables, remarks) == (8, "3 more places.", {}, ())
    assert table.rows[0] == ("train.py:100", "item", "1", "in 1 of 6 steps")
    assert list(waits_section(Story.of(RecordingBuilder().close()))) == []


def test_copies_that_a_finding_is_about_do_not_belong() -> None:
    """A copy to the device of which MPS4xx says how to do without it is told apart from those that belong."""
    recording = loop(waiting(30, Wait.COPY_TO_MPS, 850), waiting(31, Wait.COPY_TO_MPS, 870)).close()
    copy = next(place.site for place in Story.of(recording).waits if place.site.line == 30)
    avoidable = RULES["MPS404"].finding(copy, what="copied", count=6, per_step=1.0)
    tables, remarks = section_of(recording, avoidable)
    assert remarks == ("Copies to the device wait too; the findings say how to avoid that: train.py:30 (MPS404).",)
    assert [row[0] for row in tables["waits-belonging"].rows] == ["train.py:31"]
