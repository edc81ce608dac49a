"""The questions that reports ask of a recording, answered on hand-made ones."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from anymps.record import (
    Direction,
    Fate,
    Flag,
    Line,
    Occurrence,
    OperatorUse,
    Phase,
    PhaseShare,
    RareWork,
    Recording,
    RecordingBuilder,
    RecordingWriter,
    Refusal,
    RefusalKind,
    Site,
    Step,
    Wait,
)
from anymps.record.format._schema import ENTRY

ADD, COPY, ITEM = "aten::add.Tensor", "aten::_copy_from", "aten::_local_scalar_dense"
HEAVISIDE = "aten::heaviside.out"


def train(steps: int = 3) -> RecordingBuilder:
    """`steps` steps of 100 us each, one entry a phase, with one fallback and one `.item()` in each."""
    builder = RecordingBuilder(meta={"script": "train.py"})
    move = builder.site("train.py", 10, "main", "x = x.to(device)")
    forward = builder.site("model.py", 5, "forward", "x = torch.heaviside(x, v)")
    again = builder.site("model.py", 5, "forward", "x = torch.heaviside(x, v)", via="torch/functional.py:f")
    read = builder.site("train.py", 12, "main", "total += loss.item()")
    encoder = builder.module("encoder", "Encoder")
    for step in range(steps):
        t = step * 100_000
        builder.entry("anymps::batch", start_ns=t + 10_000, duration_ns=5_000, fate=Fate.MARK, phase=Phase.BATCH)
        builder.entry(
            COPY, start_ns=t + 20_000, duration_ns=5_000, fate=Fate.COPY, phase=Phase.MOVE, site=move,
            wait=Wait.COPY_TO_MPS, direction=Direction.CPU_TO_MPS, moved_bytes=4096,
        )  # fmt: skip
        builder.entry(ADD, start_ns=t + 30_000, duration_ns=5_000, phase=Phase.FORWARD, site=again, module=encoder)
        builder.entry(
            HEAVISIDE, start_ns=t + 36_000, duration_ns=14_000, fate=Fate.FALLBACK, phase=Phase.FORWARD,
            site=forward, module=encoder, wait=Wait.FALLBACK, moved_bytes=300,
        )  # fmt: skip
        # Inside the fallback: its own copy back.
        builder.entry(
            COPY, start_ns=t + 45_000, duration_ns=1_000, fate=Fate.COPY, phase=Phase.FORWARD, site=forward,
            wait=Wait.COPY_TO_MPS, direction=Direction.CPU_TO_MPS, moved_bytes=100,
        )  # fmt: skip
        builder.entry("aten::view", start_ns=t + 50_000, duration_ns=1_000, phase=Phase.BACKWARD, flags=Flag.VIEW)
        builder.entry(
            ITEM, start_ns=t + 60_000, duration_ns=10_000, phase=Phase.LOSS_READ, site=read, wait=Wait.ITEM,
            direction=Direction.MPS_TO_CPU, moved_bytes=4,
        )  # fmt: skip
        builder.entry(
            COPY, start_ns=t + 80_000, duration_ns=10_000, fate=Fate.COPY, phase=Phase.OPTIMIZER,
            direction=Direction.MPS_TO_MPS, moved_bytes=64,
        )  # fmt: skip
        builder.end_step(t + 100_000)
    return builder


def test_step_table_shares_out_the_wall_clock() -> None:
    """Counts, bytes and time of every phase; the time before an entry is its phase's, overlap is counted once."""
    table = train().close().step_table()
    expected = (
        PhaseShare(Phase.OTHER),
        PhaseShare(Phase.BATCH, time_ns=15_000.0),
        PhaseShare(Phase.MOVE, waits=1.0, bytes_to_mps=4096.0, time_ns=10_000.0),
        PhaseShare(
            Phase.FORWARD, on_mps=1.0, on_cpu=1.0, waits=2.0, bytes_to_mps=100.0, fallback_bytes=300.0, time_ns=25_000.0
        ),
        PhaseShare(Phase.LOSS_READ, on_mps=1.0, waits=1.0, bytes_to_cpu=4.0, time_ns=19_000.0),
        PhaseShare(Phase.BACKWARD, on_mps=1.0, views=1.0, time_ns=1_000.0),
        PhaseShare(Phase.OPTIMIZER, on_mps=1.0, time_ns=30_000.0),
    )
    assert expected == table.median
    assert expected == table.mean
    assert expected == table.first
    assert table.averaged == 2
    assert sum(share.time_ns for share in table.mean) == 100_000.0


def test_step_table_keeps_the_first_step_apart() -> None:
    """Set-up and warm-up of the first step do not enter the median, nor does a step that did not end."""
    builder = RecordingBuilder()
    for step, count in enumerate((50, 2, 4, 90, 2, 4)):
        for number in range(count):
            builder.entry(ADD, start_ns=step * 1000 + number, phase=Phase.FORWARD)
        builder.end_step(step * 1000 + 1000)
    for number in range(70):
        builder.entry(ADD, start_ns=6000 + number, phase=Phase.FORWARD)
    table = builder.close().step_table()
    assert [share.on_mps for share in table.first if share.phase is Phase.FORWARD] == [50.0]
    assert [share.on_mps for share in table.median if share.phase is Phase.FORWARD] == [4.0]
    assert [share.on_mps for share in table.mean if share.phase is Phase.FORWARD] == [20.4]


@pytest.mark.parametrize(
    ("more", "rare"),
    [
        ((4, 8, 12), RareWork(3, 4, 30, 0, 1)),
        ((0, 6, 12), RareWork(2, 6, 30, 0, 1)),
        ((3, 4), RareWork(2, 0, 30, 0, 1)),
        ((9,), RareWork(1, 0, 30, 0, 1)),
        ((0,), None),
        ((), None),
        (range(1, 13, 2), None),
    ],
)
def test_what_few_steps_do_is_no_part_of_the_typical_one(more: Collection[int], rare: RareWork | None) -> None:
    """The table has the median of each number; what some steps do beyond it is told with how often they do."""
    builder = RecordingBuilder()
    for step in range(13):
        for number in range(35 if step in more else 5):
            builder.entry(ADD, start_ns=step * 1000 + number, phase=Phase.FORWARD)
        if step in more:
            builder.entry(ITEM, start_ns=step * 1000 + 90, fate=Fate.COPY, wait=Wait.ITEM, phase=Phase.FORWARD)
        builder.end_step(step * 1000 + 1000)
    table = builder.close().step_table()
    often = 2 * len([step for step in more if step]) >= 12
    whole = [sum(getattr(share, field) for share in table.median) for field in ("on_mps", "waits")]
    assert whole == ([35.0, 1.0] if often else [5.0, 0.0])
    assert table.rare == rare


def test_steps_that_all_differ_have_no_rare_work() -> None:
    """A text generation does more in each round: none of them is odd."""
    builder = RecordingBuilder()
    for step in range(9):
        for number in range(step + 1):
            builder.entry(ADD, start_ns=step * 1000 + number, phase=Phase.FORWARD)
        builder.end_step(step * 1000 + 1000)
    assert builder.close().step_table().rare is None


def test_step_table_without_steps_is_empty() -> None:
    """A run without a complete step has no table."""
    builder = RecordingBuilder()
    builder.entry(ADD, start_ns=0)
    table = builder.close().step_table()
    assert (table.averaged, table.mean, table.median, table.first, table.rare) == (0, (), (), (), None)


@pytest.mark.parametrize(
    ("entries", "times"),
    [
        ([], {Phase.OTHER: 1000}),
        ([(0, 500, Phase.OTHER), (900, 300, Phase.FORWARD), (1900, 600, Phase.BACKWARD)],
         {Phase.FORWARD: 200, Phase.BACKWARD: 800}),
        ([(1100, 700, Phase.FORWARD), (1600, 900, Phase.BACKWARD), (1850, 50, Phase.OPTIMIZER)],
         {Phase.FORWARD: 800, Phase.BACKWARD: 200}),
        ([(1200, 600_000, Phase.BACKWARD), (1900, 50, Phase.OPTIMIZER)], {Phase.BACKWARD: 1000}),
    ],
)  # fmt: skip
def test_a_step_has_its_own_time(entries: list[tuple[int, int, Phase]], times: dict[Phase, float]) -> None:
    """Calls that begin before a step or end after it count, and their time is cut to the step's; overlap counts once.

    A step in which nothing reached the device belongs to `other` altogether.
    """
    builder = RecordingBuilder(start_ns=1000)
    for number, (start, length, phase) in enumerate(entries):
        builder.entry(ADD, start_ns=start, duration_ns=length, phase=phase, thread=number % 2)
    builder.end_step(2000)
    first = builder.close().step_table().first
    assert {share.phase: share.time_ns for share in first if share.time_ns} == times
    assert sum(share.on_mps for share in first) == len(entries)


def test_fallbacks() -> None:
    """A fallback is told with its place, modules, phases, steps and bytes."""
    assert train().close().fallbacks() == (
        Occurrence(
            operator=HEAVISIDE,
            fate=Fate.FALLBACK,
            wait=Wait.FALLBACK,
            direction=Direction.NONE,
            blocking=True,
            site=Site("model.py", 5, "forward", "x = torch.heaviside(x, v)"),
            phases=(Phase.FORWARD,),
            modules=("encoder",),
            count=3,
            steps=3,
            per_step=1.0,
            duration_ns=42_000,
            moved_bytes=900,
        ),
    )


def test_waits_and_copies() -> None:
    """Waits hold fallbacks and blocking copies; copies hold both ways and single values, none within the device."""
    recording = train().close()
    assert [(wait.wait, wait.site.line, wait.count) for wait in recording.waits()] == [
        (Wait.COPY_TO_MPS, 10, 3),
        (Wait.FALLBACK, 5, 3),
        (Wait.COPY_TO_MPS, 5, 3),
        (Wait.ITEM, 12, 3),
    ]
    assert [(copy.direction, copy.site.line, copy.moved_bytes) for copy in recording.copies()] == [
        (Direction.CPU_TO_MPS, 10, 12_288),
        (Direction.CPU_TO_MPS, 5, 300),
        (Direction.MPS_TO_CPU, 12, 12),
    ]


def test_non_blocking_copies_are_told_apart() -> None:
    """A copy that did not wait is no wait, and stands apart from one that did at the same line."""
    builder = RecordingBuilder()
    line = builder.site("train.py", 1)
    for flags, wait in ((Flag.NON_BLOCKING, Wait.NONE), (Flag(0), Wait.COPY_TO_MPS)):
        builder.entry(
            COPY, start_ns=0, fate=Fate.COPY, site=line, direction=Direction.CPU_TO_MPS, wait=wait, flags=flags
        )  # fmt: skip
    recording = builder.close()
    assert [(copy.blocking, copy.count) for copy in recording.copies()] == [(False, 1), (True, 1)]
    assert [wait.count for wait in recording.waits()] == [1]


def test_per_step_counts_complete_steps_only() -> None:
    """What happens after the last complete step, or in the first with its set-up, counts for the run only."""
    builder = RecordingBuilder()
    line = builder.site("train.py", 12)
    for step in range(4):
        for _ in range(step or 5):
            builder.entry(ITEM, start_ns=step * 10, site=line, wait=Wait.ITEM)
        if step < 3:
            builder.end_step(step * 10 + 10)
    (wait,) = builder.close().waits()
    assert (wait.count, wait.steps, wait.per_step) == (11, 3, 2.0)


def test_per_step_of_a_single_step() -> None:
    """A single complete step is the typical one, and without any there is none."""
    for steps, per_step in ((1, 2.0), (0, 0.0)):
        builder = RecordingBuilder()
        for _ in range(2):
            builder.entry(ITEM, start_ns=0, wait=Wait.ITEM)
        for step in range(steps):
            builder.end_step(step + 10)
        assert [wait.per_step for wait in builder.close().waits()] == [per_step]


def test_lines() -> None:
    """The run line by line: what ran where, waits and changes of backend; what has no line comes last."""
    assert train().close().lines() == (
        Line("model.py", 5, "x = torch.heaviside(x, v)", 3, 3, 6, 0, 6, 60_000),
        Line("train.py", 10, "x = x.to(device)", 0, 0, 3, 0, 0, 15_000),
        Line("train.py", 12, "total += loss.item()", 3, 0, 3, 0, 0, 30_000),
        Line("", 0, "", 6, 0, 0, 0, 0, 33_000),
    )


def test_lines_show_refusals() -> None:
    """A line whose call was refused is listed even if nothing else happened there."""
    builder = RecordingBuilder()
    line = builder.site("train.py", 4, "main", "x.double()")
    builder.refusal(RefusalKind.FLOAT64, "TypeError", "no", operator="aten::_to_copy", start_ns=0, site=line)
    assert builder.close().lines() == (Line("train.py", 4, "x.double()", 0, 0, 0, 1, 0, 0),)


def test_operators() -> None:
    """Calls by operator and fate, most frequent first; marks are no operators."""
    assert train(1).close().operators() == (
        OperatorUse(COPY, Fate.COPY, 3, 16_000, 4260),
        OperatorUse(ITEM, Fate.NATIVE, 1, 10_000, 4),
        OperatorUse(ADD, Fate.NATIVE, 1, 5_000, 0),
        OperatorUse(HEAVISIDE, Fate.FALLBACK, 1, 14_000, 300),
        OperatorUse("aten::view", Fate.NATIVE, 1, 1_000, 0),
    )


def test_refusals() -> None:
    """A refusal carries text, place, origin and details; the operator is the entry's unless the details name it."""
    builder = RecordingBuilder()
    line = builder.site("train.py", 9, "main", "x = x.to(device)")
    origin = builder.site("train.py", 2, "main", "x = np.zeros(3)")
    text = "Cannot convert a MPS Tensor to float64 dtype"
    detail = {"name": "x", "numpy_default": True}
    for number, extra in enumerate(({}, {"operator": "aten::empty_strided"})):
        builder.refusal(
            RefusalKind.FLOAT64, "TypeError", text, operator="aten::_to_copy", start_ns=number, site=line,
            origin=origin if number else 0, detail={**detail, **extra},
        )  # fmt: skip
    place = Site("train.py", 9, "main", "x = x.to(device)")
    assert builder.close().refusals() == (
        Refusal(RefusalKind.FLOAT64, "TypeError", text, "aten::_to_copy", place, Site("", 0), detail),
        Refusal(
            RefusalKind.FLOAT64, "TypeError", text, "aten::empty_strided", place,
            Site("train.py", 2, "main", "x = np.zeros(3)"), {**detail, "operator": "aten::empty_strided"},
        ),
    )  # fmt: skip


def test_steps_tell_which_one_did_not_end() -> None:
    """A step that was begun and not ended is there, and is not counted as complete."""
    writer = RecordingWriter.in_memory()
    writer.add("operators", [(1, ITEM)])
    writer.add("signatures", [(1, 1, 0, "[]", "[]", "{}")])
    for step in range(2):
        writer.spool(ENTRY.pack(step * 10, 1, 4, -1, 1, 0, 0, step, 0, Phase.OTHER, Wait.ITEM, 2, 0, 0, 0))
    writer.add("steps", [(0, 0, 10), (1, 10, None)])
    writer.close()
    recording = writer.recording()
    assert [(wait.count, wait.steps, wait.per_step) for wait in recording.waits()] == [(2, 1, 1.0)]
    assert recording.steps() == (Step(0, 0, 10), Step(1, 10, None))
    assert [step.complete for step in recording.steps()] == [True, False]
    assert recording.complete_steps == 1


def dropping() -> Recording:
    """Four steps of three plain operators and one wait; the detail of plain operators ends within step 2."""
    writer = RecordingWriter.in_memory()
    writer.add("operators", [(1, ADD), (2, ITEM)])
    writer.add("signatures", [(1, 1, 0, "[]", "[]", "{}"), (2, 2, 0, "[]", "[]", "{}")])
    sites = [(1, "train.py", 3, "main", "y = x + 1"), (2, "train.py", 4, "main", "y.item()")]
    writer.add("sites", [(*site, "", 0, "", "") for site in sites])
    for step in range(4):
        for number, phase in enumerate((Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)):
            if step < 2 or (step == 2 and phase is Phase.FORWARD):
                writer.spool(ENTRY.pack(step * 100 + number, 1, 0, -1, 1, 0, 1, step, 0, phase, 0, 0, 0, 0, 0))
        writer.spool(ENTRY.pack(step * 100 + 50, 1, 4, -1, 2, 0, 2, step, 0, Phase.LOSS_READ, Wait.ITEM, 2, 0, 0, 0))
        writer.add("steps", [(step, step * 100, step * 100 + 100)])
    writer.add("totals", [(1, 0, 1, 3, 0, 0, 12, 12, 0), (2, 0, 2, 4, 1, 2, 4, 4, 16)])
    writer.close()
    return writer.recording()


def test_totals_count_what_was_dropped() -> None:
    """Lines and operators are counted from the totals, so they are right where detail was dropped."""
    recording = dropping()
    assert (recording.entry_count, recording.dropped) == (16, 5)
    assert [(line.line, line.on_mps, line.waits) for line in recording.lines()] == [(3, 12, 0), (4, 4, 4)]
    assert [(use.name, use.count) for use in recording.operators()] == [(ADD, 12), (ITEM, 4)]


def test_step_table_leaves_out_steps_without_detail() -> None:
    """A step from which plain operators were dropped would lower the mean, so only steps with all detail enter it."""
    table = dropping().step_table()
    assert table.averaged == 0
    assert [share.on_mps for share in table.first] == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_waits_are_complete_where_detail_was_dropped() -> None:
    """Waits keep their detail, so every complete step counts for them."""
    (wait,) = dropping().waits()
    assert (wait.count, wait.steps, wait.per_step) == (4, 4, 1.0)


def test_totals_that_lag_behind_are_not_used() -> None:
    """After a kill between two flushes the entries know more than the totals, and are counted instead."""
    writer = RecordingWriter.in_memory()
    writer.add("operators", [(1, ADD)])
    writer.add("signatures", [(1, 1, 0, "[]", "[]", "{}")])
    writer.spool(ENTRY.pack(0, 1, 0, -1, 1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0) * 5)
    writer.add("totals", [(1, 0, 0, 3, 0, 0, 2, 2, 0)])
    recording = writer.recording()
    assert not recording.complete
    assert [use.count for use in recording.operators()] == [5]
    assert recording.dropped == 0


@pytest.mark.parametrize(
    ("vocabulary", "words"),
    [
        (Phase, "other, batch, move, forward, loss read, backward, optimizer"),
        (Wait, ", item, copy to mps, copy to cpu, synchronize, event, empty cache, fallback, inside operator"),
        (Direction, ", cpu to mps, mps to cpu, mps to mps"),
        (Fate, "native, fallback, always fallback, missing, refused, copy, wait, mark"),
    ],
)
def test_vocabularies_are_the_documented_ones(vocabulary: type[Phase], words: str) -> None:
    """The index in the documented list is the stored number."""
    assert ", ".join(word.label for word in vocabulary) == words
    assert [word.value for word in vocabulary] == list(range(len(words.split(", "))))
