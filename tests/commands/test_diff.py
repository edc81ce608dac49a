"""What changed between two recordings: findings new, gone and with other counts, the step, operators, memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anymps.commands import main
from anymps.findings import Story, find
from anymps.record import Fate, Phase, Recording, RecordingBuilder, RecordingWriter, Wait
from anymps.report import Diff, compare, diff_document, rendered
from anymps.report.diff._document import numbers
from recordings import META, MODEL, SCRIPT, training


def diff_of(before: Recording, after: Recording) -> Diff:
    """The comparison of two recordings with their own findings."""
    return compare(Story.of(before), Story.of(after), find(before), find(after))


def text_of(diff: Diff) -> str:
    """The comparison as text."""
    return "".join(rendered(diff_document(diff), "terminal"))


def reads(
    per_step: int, *, line: int = 36, steps: int = 5, operators: dict[str, Fate] | None = None
) -> RecordingBuilder:
    """A recording builder with a loop that reads a value so many times a step."""
    builder = RecordingBuilder(meta=META)
    site = builder.site(SCRIPT, line, "main", "running += loss.item()")
    for step in range(steps):
        start = step * 1_000_000
        for name, fate in (operators or {}).items():
            wait = Wait.FALLBACK if fate is Fate.FALLBACK else Wait.NONE
            model = builder.site(MODEL, 19, "forward", f"x = {name}(x)")
            builder.entry(
                name, start_ns=start + 1, duration_ns=100, fate=fate, wait=wait, site=model, phase=Phase.FORWARD
            )
        for number in range(per_step):
            builder.entry(
                "aten::_local_scalar_dense", start_ns=start + 1000 + number, duration_ns=1, phase=Phase.LOSS_READ,
                site=site, wait=Wait.ITEM,
            )  # fmt: skip
        builder.end_step(start + 1_000_000)
    return builder


BETTER = """\
Findings: 2 gone.
  before  train.py, M3 Pro 18GB, torch 2.13.0+cpu, 3,070 calls, 10 complete steps
  after   train.py, M3 Pro 18GB, torch 2.13.0+cpu, 3,050 calls, 10 complete steps

Findings that are gone

  MPS102 warning  nets/model.py:19  Operator runs on the CPU in the loop
      `aten::heaviside.out` in module `block.1` ran on the CPU once a step: 2 device switches a
      step.
  MPS201 warning  train.py:36  Value read back in every step
      `.item()` made the host wait once a step.

The training step  before, after, and the ratio of the times

  phase           on mps  on CPU   waits               time  ratio
  batch                                             1.00 ms   1.00
  move                                 2            90.0 us   1.00
  forward            101  1 -> 0  1 -> 0            3.54 ms   1.00
  loss read       1 -> 0          1 -> 0        975 us -> 0
  backward           200                            6.07 ms   1.00
  optimizer            1                  630 us -> 1.60 ms   2.55
  other

  whole step  303 -> 302  1 -> 0  4 -> 2            12.3 ms   1.00

Operators without an MPS kernel

  no longer called  aten::heaviside.out
"""


def test_whole_comparison() -> None:
    """The whole text of a comparison in which two findings went away."""
    diff = diff_of(training().close(), training(clean=True).close())
    assert text_of(diff) == BETTER


def test_moved_lines_and_longer_runs_are_no_change() -> None:
    """A finding whose line moved, in a run of another length, is the same one."""
    diff = diff_of(reads(1).close(), reads(1, line=40, steps=9).close())
    assert (diff.new, diff.gone, diff.changed, diff.same) == ((), (), (), 1)
    assert text_of(diff).startswith("Findings: 1 as before.\n")


@pytest.mark.parametrize(
    ("loops", "title"),
    [
        (("training", "training"), "The training step"),
        (("inference", "inference"), "One round of the loop"),
        (("training", "inference"), "A step, or a round of the loop"),
    ],
)
def test_the_step_is_called_what_it_is(loops: tuple[str, str], title: str) -> None:
    """An inference has rounds and no training step, in the text and on the page."""
    sides = []
    for kind in loops:
        builder = RecordingBuilder(meta={**META, "loop": kind})
        builder.entry("aten::relu", start_ns=1, duration_ns=1, phase=Phase.FORWARD)
        builder.end_step(10)
        sides.append(builder.close())
    diff = diff_of(*sides)
    assert f"\n{title}  before, after, and the ratio of the times\n" in text_of(diff)
    assert f'<h2 id="step-title">{title}</h2>' in "".join(rendered(diff_document(diff), "html"))


def test_other_numbers() -> None:
    """A finding that happens more often in a step is a change and not a new one."""
    diff = diff_of(reads(1).close(), reads(3).close())
    assert (diff.new, diff.gone, len(diff.changed), diff.same) == ((), (), 1, 0)
    shown = text_of(diff)
    assert shown.startswith("Findings: 1 changed.\n")
    assert "Findings with other counts\n\n  MPS201 warning  train.py:36  " in shown
    assert "1 a step before, 3 after (x 3.00)\n" in shown


def test_operators_that_changed_sides() -> None:
    """Operators that fell back in one recording alone are told by where they went or came from."""
    before = {"aten::a": Fate.FALLBACK, "aten::b": Fate.NATIVE, "aten::c": Fate.FALLBACK, "aten::d": Fate.FALLBACK}
    after = {"aten::a": Fate.NATIVE, "aten::b": Fate.FALLBACK, "aten::d": Fate.FALLBACK, "aten::e": Fate.FALLBACK}
    diff = diff_of(reads(0, operators=before).close(), reads(0, operators=after).close())
    assert (diff.now_on_cpu, diff.now_native, diff.no_longer_called) == (
        ("aten::b", "aten::e"), ("aten::a",), ("aten::c",),
    )  # fmt: skip


def test_memory_peaks() -> None:
    """Peaks of memory are compared where both recordings hold them, and unknown where one does not."""
    before, after = reads(1), reads(1)
    before.memory(5, 1 << 20, 2 << 20)
    after.memory(5, 3 << 20, 4 << 20)
    assert "  1 MiB before, 3 MiB after (x 3.00)\n" in text_of(diff_of(before.close(), after.close()))
    assert "3 MiB before, unknown after\n" in text_of(diff_of(after._writer.recording(), reads(1).close()))


def test_numbers_that_read_the_same() -> None:
    """Neither a ratio of one nor two equal numbers are told as a change."""
    before, after = reads(1), reads(1)
    before.memory(5, 1 << 20, 2 << 30)
    after.memory(5, (1 << 20) + 1, 2 << 30)
    assert "  1 MiB, as before\n" in text_of(diff_of(before.close(), after.close()))
    ((one, _),) = diff_of(reads(1).close(), reads(3).close()).changed
    assert numbers((one, one)) == "1 a step, as before"
    many, more = (replace(one, count=count, per_step=0) for count in (10_000, 10_001))
    assert numbers((many, more)) == "10,000 in the run before, 10,001 after"


def test_without_steps() -> None:
    """Without a complete step on one side the step is not compared, and the text says so."""
    shown = text_of(diff_of(RecordingBuilder().close(), reads(1).close()))
    assert "Not compared: that needs a complete step in both recordings.\n" in shown


def files(folder: Path) -> tuple[str, str]:
    """A clean recording and one with two findings, as files."""
    paths = []
    for clean in (True, False):
        path = folder / f"{clean}.anymps"
        writer = RecordingWriter(path, {"directory": "/home/me/project"})
        paths.append(str(path))
        builder = RecordingBuilder(writer)
        site = builder.site(SCRIPT, 36, "main", "running += loss.item()")
        for step in range(4):
            wait = Wait.NONE if clean else Wait.ITEM
            builder.entry("aten::_local_scalar_dense", start_ns=step * 10, phase=Phase.LOSS_READ, site=site, wait=wait)
            builder.end_step(step * 10 + 10)
        builder.close()
    return paths[0], paths[1]


@pytest.mark.parametrize(
    ("options", "worse"),
    [([], 1), (["--fail-on", "info"], 1), (["--fail-on", "error"], 0), (["--fail-on", "never"], 0)],
)
def test_command_status(capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], worse: int) -> None:
    """`anymps diff` ends with 1 for new findings of the level or above, and with 0 for findings that went away."""
    clean, dirty = files(tmp_path)
    assert main(["diff", clean, dirty, *options]) == worse
    assert capsys.readouterr().out.startswith("Findings: 1 new.\n")
    assert main(["diff", dirty, clean, *options]) == 0
    assert capsys.readouterr().out.startswith("Findings: 1 gone.\n")


def test_command_writes_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`--format html --output FILE` writes one page with the findings of both; that is no recording to compare."""
    clean, dirty = files(tmp_path)
    output = tmp_path / "diff.html"
    assert main(["diff", dirty, clean, "--format", "html", "--output", str(output)]) == 0
    text = output.read_text()
    assert text.startswith("<!doctype html>")
    assert "Findings: 1 gone." in text
    assert main(["diff", clean, str(output)]) == 2
    expected = f"anymps: {output} is not a recording: give a file that `anymps run --record` made\n"
    assert capsys.readouterr() == ("", expected)
