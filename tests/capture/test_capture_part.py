"""A part of a run: steps 10 to 30, by the steps of the program's optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import anymps
from anymps.capture import Capture, OptimizerNumbers, _device_choice
from anymps.record import Recording
from processes import MAC, run_command

pytestmark = pytest.mark.usefixtures("virtual_device")
SOURCES = pytest.mark.parametrize("source", ["native", "observer"])


def train(steps: int, part: tuple[int, int], source: str, path: Path | None = None) -> Capture:
    """Some steps with one read each, the part of which is recorded."""
    with anymps.record(path, source=source, steps=part) as capture:
        model = nn.Linear(4, 4).to("mps")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        rows = [torch.ones(4) for _ in range(2 * steps)]
        for batch in DataLoader(rows, batch_size=2, pin_memory=False):
            optimizer.zero_grad()
            loss = model(batch.to("mps")).square().sum()
            loss.backward()
            optimizer.step()
            loss.item()
    return capture


@SOURCES
def test_only_the_part_is_recorded(source: str, tmp_path: Path) -> None:
    """Steps 2 to 5 of seven: three steps, each with its calls, and the one read and copy of each."""
    whole = train(3, (0, 3), source).recording
    capture = train(7, (2, 5), source, tmp_path / "part.anymps")
    assert (capture.steps_seen, capture.has_begun, capture.is_over) == (7, True, True)
    with Recording.open(tmp_path / "part.anymps") as recording:
        assert recording.complete
        assert (recording.meta["steps"], recording.meta["steps_seen"]) == ([2, 5], 7)
        assert recording.complete_steps == 3
        assert [wait.count for wait in recording.waits()] == [3, 3]  # the copies, and the reads after steps 1 to 3
        typical, usual = recording.step_table().typical, whole.step_table().typical
        assert sum(share.on_mps for share in typical) == sum(share.on_mps for share in usual)
        first, *_ = recording.steps()
        assert first.start_ns == recording.meta["begin_ns"] > 0  # what came before is no part of it


@SOURCES
@pytest.mark.parametrize("part", [(0, 9), (1, 3)])
def test_what_the_source_says_is_in_a_part(
    source: str, part: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, whether the part is over before the run is, or not."""
    script = tmp_path / "train.py"
    script.write_text('kind = "cuda" if "cuda" in device else "cpu"\nautocast(kind)\n')
    monkeypatch.setattr(_device_choice, "program_files", lambda _: [str(script)])
    found = train(4, part, source).recording.noted("device_type")
    assert [(note.facts["name"], note.occurrence.count, note.other.line) for note in found] == [("kind", 1, 2)]


@SOURCES
def test_what_was_made_before_the_part_is_known(source: str) -> None:
    """The loader and the optimizer are noted once, with their lines, though they were made before the part."""
    recording = train(4, (2, 3), source).recording
    assert [noted.facts["workers"] for noted in recording.noted("loader")] == [0]
    assert [noted.facts["name"] for noted in recording.noted("optimizer")] == ["AdamW"]
    assert [noted.occurrence.site.source.strip() for noted in recording.noted("optimizer")] == ["optimizer.step()"]


def weights(count: int) -> list[torch.optim.Optimizer]:
    """An optimizer for each of some weights."""
    return [torch.optim.SGD([nn.Parameter(torch.ones(2, device="mps"))], lr=0.1) for _ in range(count)]


@pytest.mark.parametrize(
    ("order", "seen", "part"),
    [
        ("dg" * 6, 6, [1, 3]), ("dddg" * 6, 6, [1, 3]), ("dddddg" * 12, 12, [1, 3]),
        ("d" * 15, 15, [10, 12]),  # the other one may still have its first turn, until it would be a rare one
    ],
)  # fmt: skip
def test_optimizers_that_take_turns_make_a_step_together(order: str, seen: int, part: list[int]) -> None:
    """The part is of rounds, as the report's steps are, and a critic's first steps are no rounds of their own."""
    with anymps.record(steps=(1, 3)) as capture:
        optimizers = dict(zip("dg", weights(2), strict=True))
        for name in order:
            torch.ones(1, device="mps")
            optimizers[name].step()
    assert (capture.steps_seen, capture.recording.meta["steps"]) == (seen, part)
    assert (capture.progress.recorded, capture.recording.complete_steps) == (2, 2)


def test_optimizers_are_told_apart_by_their_parameters() -> None:
    """One for a generator, one for a discriminator and one for both, as in an InfoGAN; made anew, each is the same."""
    a, b = (nn.Parameter(torch.ones(2)) for _ in range(2))
    numbers = OptimizerNumbers()
    for _ in range(2):
        made = [torch.optim.SGD(parameters, lr=0.1) for parameters in ([a], [b], [a, b])]
        made[0].add_param_group({"params": [b]})
        assert [numbers.number(optimizer) for optimizer in made] == [1, 2, 3]


@SOURCES
def test_an_optimizer_of_before_is_not_waited_for(source: str) -> None:
    """One left over from what ran before the recording, such as another cell of a notebook, makes no step later."""
    left_over = weights(1)
    capture = train(7, (2, 5), source)
    assert (capture.steps_seen, capture.recording.meta["steps"], capture.recording.complete_steps) == (7, [2, 5], 3)
    del left_over


def test_a_part_that_began_before_a_step_was_known() -> None:
    """A critic's first steps count until the generator, made before the recording, has its first turn."""
    critic, generator = weights(2)
    with anymps.record(steps=(3, 6)) as capture:
        for optimizer in [*[critic] * 5, generator] * 8:
            torch.ones(1, device="mps")
            optimizer.step()
    assert (capture.steps_seen, capture.recording.meta["steps"]) == (8, [1, 6])
    assert (capture.progress.recorded, capture.is_over) == (5, True)


def test_a_part_that_never_comes() -> None:
    """A run with too few steps leaves an empty recording, and no word on a device that was not used."""
    capture = train(2, (5, 9), "native")
    assert (capture.steps_seen, capture.has_begun, capture.is_over) == (2, False, False)
    assert capture.recording.entry_count == 0
    assert "device_choice" not in capture.recording.meta


@pytest.mark.parametrize("steps", [(3, 3), (-1, 2), (5, 2)])
def test_steps_that_are_none(steps: tuple[int, int]) -> None:
    """They are refused before anything is recorded."""
    with pytest.raises(anymps.UsageError) as refused:
        anymps.record(steps=steps)
    assert str(refused.value) == (
        f"steps {steps[0]}:{steps[1]} is not a range: the first counts from 0, and the last must be larger"
    )


SCRIPT = """
import torch
weight = torch.nn.Parameter(torch.ones(2, device="mps"))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(6):
    weight.square().sum().backward()
    optimizer.step()
"""


def test_run_records_a_part(tmp_path: Path) -> None:
    """`--steps 2:5` records three steps, and the report says which; 2 the first two. With too few one line says so."""
    (tmp_path / "train.py").write_text(SCRIPT)
    run = ["-m", "anymps", "run", "--mac", MAC]
    wanted = ("--steps", "2:5", "--record", "part.anymps", "--report", "terminal=r.txt")
    part = run_command(*run, *wanted, "train.py", cwd=tmp_path)
    assert part.status == 0, part.err
    assert "3 complete steps (steps 2:5 of 6)" in (tmp_path / "r.txt").read_text()
    first = run_command(*run, "--steps", "2", "train.py", cwd=tmp_path)
    assert (first.status, first.err.splitlines()[1][:9]) == (0, "Would run")
    none = run_command(*run, "--steps", "10:30", "train.py", cwd=tmp_path)
    assert none.status == 4
    assert none.err.splitlines()[1:] == [
        "anymps: nothing was recorded: the script made 6 training steps, and --steps is 10:30"
    ]
    odd = run_command(*run, "--steps", "30:10", "train.py", cwd=tmp_path)
    assert (odd.status, odd.err) == (
        2,
        "anymps: Invalid value for '--steps': '30:10' is not a number of steps, such as 8, or a range of them, such as "
        "10:30 (anymps run --help)\n",
    )
