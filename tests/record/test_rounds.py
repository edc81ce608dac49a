"""What a step is: the loop that a program runs, whatever it calls in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import anymps
from anymps.findings import Story, find
from anymps.record import Phase, Recording, RecordingBuilder, RoundKind
from anymps.record.loop import Round, Rounds, _rounds, cycles
from anymps.report import render_terminal

pytestmark = pytest.mark.usefixtures("virtual_device")
SOURCES = ["native", "observer"]


def by_hand() -> None:
    """A training without an optimizer."""
    x, w = torch.randn(4, 8).to("mps"), torch.zeros(8, 1, device="mps", requires_grad=True)
    for _ in range(6):
        loss = (x @ w - 1).square().mean()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
        print(loss.item())


def adversaries() -> None:
    """Two optimizers that take turns."""
    one, other = nn.Linear(4, 4).to("mps"), nn.Linear(4, 1).to("mps")
    first, second = torch.optim.SGD(other.parameters(), 0.1), torch.optim.SGD(one.parameters(), 0.1)
    for _ in range(6):
        x = torch.randn(2, 4).to("mps")
        other(one(x).detach()).sum().backward()
        first.step()
        loss = other(one(x)).sum()
        loss.backward()
        second.step()
        print(loss.item())


def one_after_the_other() -> None:
    """Two trainings."""
    for _ in range(2):
        model = nn.Linear(4, 1).to("mps")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            model(torch.randn(2, 4).to("mps")).sum().backward()
            optimizer.step()


def accumulation() -> None:
    """An optimizer's step after each third backward."""
    model = nn.Linear(4, 1).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(18):
        loss = model(torch.randn(2, 4).to("mps")).sum() / 3
        loss.backward()
        if number % 3 == 2:
            optimizer.step()


def inference() -> None:
    """A model asked batch by batch; the loader's end is the end of the last round."""
    model = nn.Linear(4, 3).to("mps")
    with torch.no_grad():
        for batch in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=2):
            x = batch.to("mps")
            out = model(x)
            print(out.argmax().item())


def lines_alone() -> None:
    """Neither a module nor a backward, a loader or an optimizer."""
    w, h = torch.randn(4, 4).to("mps"), torch.zeros(1, 4, device="mps")
    for _ in range(7):
        x = torch.randn(1, 4).to("mps")
        h = torch.tanh(h @ w + x)
        print(h.argmax().item())


def nothing_twice() -> None:
    """No loop."""
    model = nn.Linear(4, 3).to("mps")
    print(model(torch.randn(2, 4).to("mps")).sum().item())


def recorded(program: Callable[[], None], source: str) -> Recording:
    """What one source makes of a program."""
    with anymps.record(source=source) as capture:
        program()
    return capture.recording


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("program", "steps", "trains"),
    [
        (by_hand, 5, True), (adversaries, 6, True), (one_after_the_other, 6, True), (accumulation, 6, True),
        (inference, 6, False), (lines_alone, 6, False), (nothing_twice, 0, True),
    ],
)  # fmt: skip
def test_steps_of_a_loop(program: Callable[[], None], steps: int, trains: bool, source: str) -> None:
    """Each round of the loop is a step, and each complete one after the first holds the same."""
    recording = recorded(program, source)
    assert recording.trains is trains
    complete = [step for step in recording.steps() if step.complete]
    # The last round of a loop has no end unless an optimizer, or a loader that is asked once more, tells it.
    assert len(complete) == steps
    counts = dict(recording.stream("SELECT step, COUNT(*) FROM entries GROUP BY step"))
    assert len({counts[step.step] for step in complete[1:]}) <= 1 or program is one_after_the_other


@pytest.mark.parametrize("source", SOURCES)
def test_an_update_by_hand_is_a_training(source: str) -> None:
    """Its forward, backward and what follows are told apart, and its findings are those of a training."""
    recording = recorded(by_hand, source)
    shares = {share.phase: share.on_mps for share in recording.step_table().median}
    assert (shares[Phase.FORWARD], shares[Phase.LOSS_READ], shares[Phase.OPTIMIZER]) == (5, 1, 0)
    assert shares[Phase.BACKWARD] >= 4
    assert shares[Phase.OTHER] == 2
    assert [finding.id for finding in find(recording)] == ["MPS202"]
    assert Story.of(recording).notes == ()


@pytest.mark.parametrize("source", SOURCES)
def test_a_read_after_two_optimizers_is_in_every_step(source: str) -> None:
    """With a step for each optimizer it would be in every second one only."""
    (finding,) = (each for each in find(recorded(adversaries, source)) if each.id == "MPS202")
    assert finding.per_step == 1


def test_an_inference_has_a_table_and_no_training(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is of rounds of the loop; the rules about a training leave it alone and say so."""
    recording = recorded(inference, "native")
    text = render_terminal(Story.of(recording), find(recording), width=100)
    assert "One round of the loop  median of 5 steps, without the first" in text
    assert [finding.id for finding in find(recording)] == []
    assert list(Story.of(recording).notes) == [
        "The rules about the training loop (such as MPS201) were not applied: they need 3 complete training "
        "steps, and the recording has none. A training step ends with `optimizer.step()`, or is a round with a "
        "`backward()`."
    ]
    assert len(capsys.readouterr().out.split()) == 6


@pytest.mark.parametrize(
    ("order", "ends"),
    [
        ("ABABAB", "BBB"), ("AAAAABAAAAAB", "BB"), ("ABCABC", "CC"), ("AAAABBBB", "AAAABBBB"), ("A", "A"), ("", ""),
        (("A" * 40 + "B" * 4) * 3, ("A" * 40 + "B" * 4) * 3), (("A" * 30 + "B") * 3, "A" * 90),
    ],
)  # fmt: skip
def test_optimizers_that_take_turns_share_a_step(order: str, ends: str) -> None:
    """The last of a round ends it. What comes rarely among the others ends none; what trains by itself has its own."""
    rounds = [Round(RoundKind.OPTIMIZER, ord(name), 1, time, time) for time, name in enumerate(order)]
    found = sorted((anchor for anchors in cycles(rounds) for anchor in anchors), key=lambda anchor: anchor.end_ns)
    assert "".join(chr(anchor.key) for anchor in found) == ends


def test_optimizers_made_anew_are_one() -> None:
    """Inner optimizers of a meta-learning belong to the step of the outer one."""
    rounds, time = [], 0
    for outer in range(100):
        for _ in range(5):
            time += 1
            rounds.append(Round(RoundKind.OPTIMIZER, 100 + outer, 1, time, time))
        time += 1
        rounds.append(Round(RoundKind.OPTIMIZER, 1, 2, time, time))
    (anchors,) = cycles(rounds)
    assert {anchor.site for anchor in anchors} == {2}
    assert len(anchors) == 100


def test_an_optimizer_for_each_weight() -> None:
    """They are many, but they come again: the last of them ends the step, as it does with a few."""
    order = [key for _ in range(4) for key in range(100)]
    rounds = [Round(RoundKind.OPTIMIZER, key, 1, time, time) for time, key in enumerate(order)]
    (anchors,) = cycles(rounds)
    assert [anchor.key for anchor in anchors] == [99] * 4


def ended_after(order: str, needed: int, existing: str = "") -> str:
    """The steps up to the one with which so many rounds are over."""
    rounds = Rounds()
    for number, optimizer in enumerate(order, 1):
        rounds.step(optimizer)
        if rounds.have_ended(needed, lambda: existing):
            return order[:number]
    return "never"


@pytest.mark.parametrize(
    ("order", "needed", "taken"),
    [
        ("aaaaaa", 3, "aaa"), ("dgdgdgdg", 3, "dgdgdg"), ("ddgddgddgddg", 3, "ddgddgddg"),
        ("abcabcabcabc", 3, "abcabcabc"), ("aabbbbbb", 3, "aabbb"), ("aarab" + "a" * 20, 3, "aarab" + "a" * 8),
        ("dddddgddddd", 3, "ddd"), ("dgdg", 1, "d"), ("abcdefghijklmnopqrstuvwxyz", 3, "abcdefghijklmnopqrstuvwx"),
    ],
)  # fmt: skip
def test_a_limit_counts_rounds(order: str, needed: int, taken: str) -> None:
    """It is reached where a recording that ends there has as many steps, and not before each has had its turn."""
    assert ended_after(order, needed) == taken


@pytest.mark.parametrize(
    ("order", "needed", "taken"),
    [
        ("dddddgdddddgdddddgddddd", 3, "dddddgdddddgdddddg"), ("d" * 20, 3, "d" * 10), ("d" * 20, 12, "d" * 12),
        ("dgdg", 1, "dg"),
    ],
)  # fmt: skip
def test_a_limit_waits_for_an_optimizer_that_has_not_stepped_yet(order: str, needed: int, taken: str) -> None:
    """Not for longer than it could still be part of each round."""
    assert ended_after(order, needed, "dg") == taken


@pytest.mark.parametrize("order", ["ab" * 3000, "aaaaab" * 900, "abc" * 30 + "d" * 60, "a" * 50 + "bc" * 60])
def test_rounds_are_counted_as_a_recording_counts_them(order: str) -> None:
    """While the program runs as well as afterwards, in a long run too."""
    rounds = Rounds()
    for number, optimizer in enumerate(order, 1):
        rounds.step(optimizer)
        if number in (1, 2, 7, 60, 90, 150, len(order)):
            before = [Round(RoundKind.OPTIMIZER, ord(name), 1, time, time) for time, name in enumerate(order[:number])]
            assert rounds.number == sum(map(len, cycles(before)))


def test_steps_of_one_optimizer_are_counted_without_a_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of all steps so far is looked at only as their number doubles."""
    looks: list[int] = []

    def look(rounds: list[Round]) -> list[list[Round]]:
        looks.append(len(rounds))
        return cycles(rounds)

    monkeypatch.setattr(_rounds, "cycles", look)
    rounds = Rounds()
    for _ in range(100):
        rounds.step("a")
    assert (rounds.number, looks) == (100, [1, 2, 4, 8, 16, 32, 64])


def test_the_raw_rounds_stay_in_the_file(tmp_path: Path) -> None:
    """A recording holds what was seen; steps are made of it."""
    with anymps.record(tmp_path / "run.anymps") as capture:
        adversaries()
    found = capture.recording.stream("SELECT kind, COUNT(*) FROM rounds GROUP BY kind ORDER BY kind")
    assert dict(found) == {RoundKind.OPTIMIZER: 12, RoundKind.BACKWARD: 12, RoundKind.MODULE: 24}


def test_memory_follows_the_steps() -> None:
    """Buffers are born and freed in the steps that were found."""
    steps = {step.step for step in recorded(inference, "native").memory_story.steps()}
    assert {0, 1, 2, 3, 4, 5} <= steps


def test_a_hand_made_recording_without_rounds_keeps_its_steps() -> None:
    """What tells no rounds tells its steps itself."""
    builder = RecordingBuilder()
    line = builder.site("train.py", 3)
    for time in (10, 20, 30, 40):
        builder.entry("aten::mm", start_ns=time, duration_ns=1, site=line)
    builder.end_step(25)
    assert [step.end_ns for step in builder.close().steps()] == [25]


@pytest.mark.parametrize("source", SOURCES)
def test_a_function_that_is_called_is_one_step(source: str) -> None:
    """Whoever records says where each step ends: optimizers, backwards and modules within end none."""
    model = nn.Linear(4, 1).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train() -> None:
        for _ in range(2):
            model(torch.ones(2, 4, device="mps")).sum().backward()
            optimizer.step()

    with anymps.record(source=source) as capture:
        for _ in range(3):
            with capture.call():
                train()
    steps = [step for step in capture.recording.steps() if step.complete]
    assert len(steps) == 3
    sums = [{phase.phase: phase.on_mps for phase in capture.recording.step_table().typical}]
    assert sums[0][Phase.FORWARD] > 0
    assert sums[0][Phase.BACKWARD] > 0
    assert sums[0][Phase.OPTIMIZER] > 0


def test_what_comes_between_two_calls_is_in_no_step() -> None:
    """The caller keeps a result as long as it likes: its release is not the function's."""
    builder = RecordingBuilder()
    for start in (100, 300, 500):
        builder.entry("aten::mm", start_ns=start + 10, duration_ns=5)
        builder.round(RoundKind.CALLED, start_ns=start, end_ns=start + 50)
    steps = [(step.start_ns, step.end_ns) for step in builder.close().steps()]
    assert steps[:3] == [(100, 150), (300, 350), (500, 550)]
