"""The terminal report: whole texts for hand-made recordings, and that nothing in a script can disturb it."""

from __future__ import annotations

import io
import re

import pytest

from anymps.findings import Story, find
from anymps.record import Fate, Flag, Recording, RecordingBuilder, RecordingWriter, RefusalKind, Wait
from anymps.report import print_document, render_terminal, report_pieces, run_document
from anymps.report._words import limits
from anymps.report.document import NARROWEST, WIDEST, Document, Section, Table, as_text
from anymps.report.run._waits import belonging_table, hurting_table
from recordings import META, SCRIPT, hostile, refusing, training


def report(recording: Recording, width: int = 100) -> str:
    """The plain report with the recording's own findings."""
    return render_terminal(Story.of(recording), find(recording), width=width)


LINES = """\
Your script, line by line  counts of the whole run

  nets/model.py
  line  on mps  on CPU  switches  waits  source
    18   1,000                           x = torch.relu(self.conv1(x))
    19              10        20     10  x = x * torch.heaviside(x.detach(), self.zero)

  train.py
  line  on mps  on CPU  switches  waits  source
    31                               20  images, labels = images.to(device), labels.to(device)
    36      10                       10  running += loss.item()

  timm/layers/drop.py
  line  on mps  on CPU  switches  waits  source
    88      10                           random_tensor.div_(keep_prob)

  Not from your lines: 2,010 on mps.
"""

WITH_FINDINGS = f"""\
Would run on M3 Pro 18GB, with 1 operator on the CPU.
2 warnings. Change first: nets/model.py:19 (MPS102, about 332 to 660 us a step). 2 of a step's 4
waits are needless; without them the host could run 277 operators ahead, not 202.
No time can be predicted for this Mac: only 3 of the step's 280 calls have a predicted time
(missing: 200 of aten::mm, 75 of aten::relu, 1 of aten::div_.Scalar and 1 of others).

What to change

MPS102 warning  Operator runs on the CPU in the loop
  where   nets/model.py:19 in forward
          | x = x * torch.heaviside(x.detach(), self.zero)
  what    `aten::heaviside.out` in module `block.1` ran on the CPU once a step: 2 device switches a
          step.
  fix     Write `torch.where(x == 0, v, (x > 0).to(x.dtype))` for `torch.heaviside(x, v)`. torch
          2.15 has an MPS kernel for it.
  cost    about 332 to 660 us a step on a Mac
  why     Each call waits until the GPU is done, copies the inputs to the CPU and the results back.
          Meanwhile the GPU is idle.
  times   10 in this run, 1 a step
  source  aten/src/ATen/mps/MPSFallback.mm; native_functions.yaml of the macOS wheels, torch 2.7 to
          2.15; a fallback is a wait, a copy there and a copy back (pytorch PRs 150452 and 182749)

MPS201 warning  Value read back in every step
  where   train.py:36 in main
          | running += loss.item()
  what    `.item()` made the host wait once a step.
  fix     Add up on the device, `running = running + loss.detach()`, and read `running` every 10
          steps or after the loop.
  cost    about 100 to 450 us a step on a Mac
  why     The host waits until the GPU has finished all queued work. The GPU is then idle until the
          host has queued more.
  times   10 in this run, 1 a step
  source  aten/src/ATen/native/mps/operations/Scalar.mm (torch 2.13); an .item() costs 0.10 ms on an
          M4 Pro with an empty queue (pytorch PR 182731)

The training step  median of 9 steps, without the first

  phase       on mps  on CPU  waits     to mps  to CPU  by fallback     time  share
  batch                                                              1.00 ms    8 %
  move                            2  588.5 KiB                       90.0 us    1 %
  forward        101       1      1                         2.3 MiB  3.54 ms   29 %
  loss read        1              1                4 B                975 us    8 %
  backward       200                                                 6.07 ms   49 %
  optimizer        1                                                  630 us    5 %
  other

  whole step     303       1      4  588.5 KiB     4 B      2.3 MiB  12.3 ms
  first step     303       1      4  588.5 KiB     4 B      2.3 MiB  12.3 ms

  25 of the operators on mps only view other memory: no kernel runs. Each fallback switches from the
  GPU to the CPU and back: 2 switches a step.

Waits  2 lines in the steps

  where             waits for  a step  operators     host     work    cost a step
  nets/model.py:19  fallback        1         75  1.33 ms  1.88 ms  332 to 660 us
  train.py:36       item            1        202  2.62 ms  5.05 ms  100 to 450 us

  Most operators were called by forward of nets/model.py:18 (before nets/model.py:19), by backward
  (before train.py:36).
  Operators: those on mps since the previous wait, median to maximum. Host: this machine's time
  between them, in which the host prepares them; work: the time inside them. On a Mac the GPU works
  meanwhile, at its own speed, and the wait lasts until it is done.

  Fine as they are:
  train.py:31  copy to mps  20  the loop's data on its way to the device

{LINES}
Environment

  Mac        Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4: working set 13.32 GiB, largest buffer
             9.99 GiB
  device     virtual: computed on this machine by the rules of MPS
  fallback   on (PYTORCH_ENABLE_MPS_FALLBACK)
  torch      2.13.0+cpu
  Python     3.11.7
  platform   Linux x86_64
  anymps     0.1.0
  variables  PYTORCH_ENABLE_MPS_FALLBACK=1
  script     train.py --epochs 3
  recorded   2026-11-21T07:05:00+00:00, 3,070 calls, 10 complete steps

Limits

  -  Times are this machine's, not a Mac's. Costs are ranges from public measurements on Macs,
     without the cost of draining a long queue.
"""

REFUSED = """\
Would not run on M3 Pro 18GB: train.py:14 raises TypeError.
1 error. Change first: train.py:14 (MPS301).

What to change

MPS301 error  float64 on MPS
  where    train.py:14
           | weights = weights.to(device)
  made at  train.py:9
           | weights = torch.from_numpy(np.linspace(1, 2, CLASSES))
  what     `weights`, made by `np.linspace(1, 2, CLASSES)` at train.py:9, is float64, NumPy's
           default dtype; going to mps raised TypeError.
  fix      Write `np.linspace(1, 2, CLASSES, dtype=np.float32)` at train.py:9, or `.float()` before
           it goes to the device.
  why      Metal has no float64: any float64 tensor on mps raises TypeError.
  times    1
  source   aten/src/ATen/mps/EmptyTensor.cpp, torch 2.7 to 2.15

Steps

  No complete step was recorded: no loop with work on mps completed a round.

Your script, line by line  counts of the whole run

  train.py
  line  on mps  on CPU  waits  refused  source
    14                               1  weights = weights.to(device)

Environment

  Mac       Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4: working set 13.32 GiB, largest buffer
            9.99 GiB
  device    virtual: computed on this machine by the rules of MPS
  fallback  off (PYTORCH_ENABLE_MPS_FALLBACK)
  torch     2.13.0+cpu
  Python    3.11.7
  platform  Linux x86_64
  anymps    0.1.0
  script    train.py --epochs 3
  recorded  2026-11-21T07:05:00+00:00, 1 call, 0 complete steps

Limits

  -  Times are this machine's, not a Mac's. Costs are ranges from public measurements on Macs,
     without the cost of draining a long queue.
  -  The rules about the training loop (such as MPS201 and MPS404) were not applied: they need 3
     complete training steps, and the recording has none. A training step ends with
     `optimizer.step()`, or is a round with a `backward()`.
"""

KILLED = """\
The recording stops in the middle of the run; until then MPS on M1 8GB rejected nothing.
No findings.

Steps

  No complete step was recorded: no loop with work on mps completed a round.

Your script, line by line  counts of the whole run

  Not from your lines: 5 on mps.

Environment

  Mac       M1 8GB
  device    virtual: computed on this machine by the rules of MPS
  recorded  5 calls, 0 complete steps

Limits

  -  Times are this machine's, not a Mac's. Costs are ranges from public measurements on Macs,
     without the cost of draining a long queue.
  -  The recording stops in the middle of the run: this report covers the run up to there.
  -  The detail of 5 plain calls was not kept: counts by line and operator include all calls, the
     step table only the steps with full detail.
  -  The rules about the training loop (such as MPS201 and MPS404) were not applied: they need 3
     complete training steps, and the recording has none. A training step ends with
     `optimizer.step()`, or is a round with a `backward()`.
"""


BRIEF = f"""\
Would run on M3 Pro 18GB, with 1 operator on the CPU.
2 warnings. Change first: nets/model.py:19 (MPS102, about 332 to 660 us a step). 2 of a step's 4
waits are needless; without them the host could run 277 operators ahead, not 202.
No time can be predicted for this Mac: only 3 of the step's 280 calls have a predicted time
(missing: 200 of aten::mm, 75 of aten::relu, 1 of aten::div_.Scalar and 1 of others).

What to change

  where             rule            finding                                 cost a step
  nets/model.py:19  MPS102 warning  Operator runs on the CPU in the loop  332 to 660 us
  train.py:36       MPS201 warning  Value read back in every step         100 to 450 us

The training step  median of 9 steps, without the first

  phase       on mps  on CPU  waits     to mps  to CPU  by fallback
  move                            2  588.5 KiB
  forward        101       1      1                         2.3 MiB
  loss read        1              1                4 B
  backward       200
  optimizer        1

  whole step     303       1      4  588.5 KiB     4 B      2.3 MiB
  first step     303       1      4  588.5 KiB     4 B      2.3 MiB

  25 of the operators on mps only view other memory: no kernel runs. Each fallback switches from the
  GPU to the CPU and back: 2 switches a step.

Waits  2 lines in the steps

  where             waits for  a step  operators    cost a step
  nets/model.py:19  fallback        1         75  332 to 660 us
  train.py:36       item            1        202  100 to 450 us

  Most operators were called by forward of nets/model.py:18 (before nets/model.py:19), by backward
  (before train.py:36).
  Operators: those on mps since the previous wait, median to maximum.

  Fine as they are:
  train.py:31  copy to mps  20  the loop's data on its way to the device

{LINES}
-v shows each finding's line, fix and reason, this machine's own times, the Mac and the versions.
"""


def test_report_of_a_loop_with_findings() -> None:
    """The whole report of a loop with a fallback and a read in every step."""
    assert report(training().close()) == WITH_FINDINGS


def test_report_in_brief() -> None:
    """A line for each finding, no time of this machine's, no phase without work, and memory in a sentence."""
    recording = training().close()
    assert render_terminal(Story.of(recording), find(recording), brief=True) == BRIEF


def test_report_of_a_clean_loop() -> None:
    """A clean loop says so, and its report holds nothing that is not there."""
    lines = report(training(clean=True).close()).splitlines()
    assert lines[:2] == ["Would run on M3 Pro 18GB.", "No findings."]
    (head,) = [line for line in lines if line.startswith("  phase ")]
    assert re.split("  +", head.strip()) == ["phase", "on mps", "on CPU", "waits", "to mps", "to CPU", "time", "share"]
    at = lines.index("Waits  all fine as they are")
    assert lines[at + 2] == "  train.py:31  copy to mps  20  the loop's data on its way to the device"
    assert not {"What to change", "  line  on mps  on CPU  switches  waits  source"} & set(lines)


def test_report_of_a_refused_run() -> None:
    """A run that MPS ends: the verdict names the line, the finding the line that made the array."""
    assert report(refusing()) == REFUSED


def test_report_of_a_killed_run() -> None:
    """A recording that stops in mid-run says so in the verdict and in its limits."""
    writer = RecordingWriter.in_memory({"virtual": True, "mac": "M1 8GB"})
    writer.add("operators", [(1, "aten::mm")])
    writer.add("signatures", [(1, 1, 0, "[]", "[]", "{}")])
    writer.add("totals", [(1, 0, 0, 3, 0, 0, 5, 5, 0)])
    assert report(writer.recording()) == KILLED


def verdict(recording: Recording) -> str:
    """The first line of the report."""
    return report(recording).splitlines()[0]


def test_verdict_on_caught_refusals() -> None:
    """A script that catches what MPS raises goes on, and the verdict says both."""
    builder = training(clean=True)
    for time in range(2):
        builder.refusal(RefusalKind.DTYPE, "TypeError", "no", operator="aten::mm", start_ns=time)
    assert verdict(builder.close()) == "Would run on M3 Pro 18GB, but 2 calls raised and the script continued."


MPS_RAISED = "Would not run on M3 Pro 18GB: train.py:5 raises TypeError."
CAUGHT = "Would run on M3 Pro 18GB, but 1 call raised and the script continued."
UP_TO_THERE = "until then MPS on M3 Pro 18GB rejected 1 call."


@pytest.mark.parametrize(
    ("ending", "first"),
    [
        ({"status": 1, "exception": "TypeError", "message": "refused so"}, MPS_RAISED),
        (
            {"status": 1, "exception": "TypeError", "message": "x"},
            "The script ended with TypeError.",
        ),
        ({"status": 130, "exception": "KeyboardInterrupt", "message": ""}, f"Ctrl-C ended the run; {UP_TO_THERE}"),
        ({"status": 2}, f"The script exited with 2; {UP_TO_THERE}"),
        ({"status": 143, "how": "SIGTERM"}, f"SIGTERM ended the run; {UP_TO_THERE}"),
        ({"status": 0, "how": "os._exit"}, CAUGHT),
        ({}, CAUGHT),
    ],
)
def test_verdict_by_the_end_of_the_run(ending: dict[str, object], first: str) -> None:
    """The verdict blames MPS for the run's end only if the error that ended it is the one that MPS raised last."""
    builder = training(clean=True, ending=ending)
    line = builder.site(SCRIPT, 5, "main", "x.double()")
    builder.refusal(RefusalKind.DTYPE, "TypeError", "refused so", operator="aten::mm", start_ns=0, site=line)
    assert verdict(builder.close()) == first


@pytest.mark.parametrize(
    ("ending", "lines"),
    [
        (
            {"status": 0},
            [
                "Nothing was recorded, so this says nothing about M3 Pro 18GB.",
                "No findings. The script made 6 training steps, and --steps is 10:30.",
            ],
        ),
        (
            {"status": 1, "exception": "KeyError", "message": "x"},
            ["The script ended with KeyError.", "1 note."],
        ),
    ],
)
def test_a_run_that_ends_before_the_part_to_record(ending: dict[str, object], lines: list[str]) -> None:
    """An empty part of a run does not claim that the run used no mps: its earlier steps were not looked at."""
    recording = RecordingBuilder(meta={**META, "steps": [10, 30], "steps_seen": 6, "ending": ending}).close()
    assert report(recording).splitlines()[: len(lines)] == lines


@pytest.mark.parametrize(
    ("ending", "lines", "mark"),
    [
        (
            {"status": 0},
            [
                "Nothing ran on mps, so this says nothing about M3 Pro 18GB.",
                'No findings. The script has to choose the device: `torch.device("mps")`, or `torch.accelerator`.',
            ],
            "info",
        ),
        (
            {"status": 1, "exception": "KeyError", "message": "x"},
            ["The script ended with KeyError, before anything reached mps.", "1 note."],
            "info",
        ),
        ({"status": 2}, ["The script exited with 2 before it used mps.", "No findings."], "info"),
    ],
)
def test_verdict_on_a_run_without_mps(ending: dict[str, object], lines: list[str], mark: str) -> None:
    """A script that never used the device is no script that would run on a Mac, and the page has no tick for it."""
    builder = RecordingBuilder(meta={**META, "ending": ending})
    builder.note("loader", start_ns=5, workers=0, pin_memory=False)
    recording = builder.close()
    assert report(recording).splitlines()[:2] == lines
    assert f'<span class="state {mark}"' in "".join(report_pieces("html", Story.of(recording), ()))


def test_verdict_on_a_real_mac() -> None:
    """On hardware the verdict is about what was, and the report does not speak of another machine's times."""
    recording = training(clean=True, virtual=False).close()
    assert verdict(recording) == "Ran on M3 Pro 18GB."
    assert "not a Mac's" not in report(recording)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (
            0,
            "The host spent 2.00 ms in calls that wait for the device. How long the device worked was not measured: "
            "put events (`torch.mps.Event(enable_timing=True)`) around a part of the loop, or use `torch.mps.profiler` "
            "with Instruments.",
        ),
        (
            2,
            "The host spent 2.00 ms in calls that wait for the device. The device took 3.00 ms between events that the "
            "script measured 2 times; how long it worked at other times was not measured.",
        ),
    ],
)
def test_the_devices_own_time_on_a_real_mac(measured: int, expected: str) -> None:
    """What was measured is told, what was not is said to be not; of a virtual device there is nothing to tell."""
    for virtual in (False, True):
        builder = RecordingBuilder(meta={"virtual": virtual, "source": "observer"})
        site = builder.site("train.py", 7)
        builder.entry("anymps::synchronize", start_ns=0, duration_ns=2_000_000, wait=Wait.SYNCHRONIZE, site=site)
        for _ in range(measured):
            builder.entry(
                "anymps::device_time {}", start_ns=0, duration_ns=1_500_000, fate=Fate.MARK, flags=Flag.PAIR, site=site
            )
        assert (expected in limits(Story.of(builder.close()))) == (not virtual)


@pytest.mark.parametrize("color", [False, True])
def test_nothing_in_a_script_is_interpreted(color: bool) -> None:
    """Markup is shown as it is and control characters as escapes, in colour too."""
    recording = hostile()
    shown = render_terminal(Story.of(recording), find(recording), width=120, color=color)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "\x07" not in shown
    assert "\x1b" not in plain
    assert r"print('[bold red]hi[/bold red]', ':smile:', '\x1b[31m', '\x07') # [link=x]" in re.sub(" +", " ", plain)
    assert "[bold]x.py:3 in [/]" in plain
    assert r"`[u]x[/u]` is on the CPU, and `aten::[dim]mm` raised RuntimeError: no [/bold] \x1b]0;title\x07" in plain
    assert r"line\nbreak" in plain
    assert "Would run on [red]M3[/red], but 1 call raised and the script continued." in plain


def test_colour_changes_no_word() -> None:
    """The coloured report is the plain one with control sequences."""
    recording = training().close()
    coloured = render_terminal(Story.of(recording), find(recording), width=100, color=True)
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert coloured != stripped
    assert [line.rstrip() for line in stripped.splitlines()] == report(recording).splitlines()


@pytest.mark.parametrize("width", [20, 60, 79, 100, 120, 400])
def test_report_keeps_to_its_width(width: int) -> None:
    """No line is longer than the width, from 60 columns on; the sums of the step stay on any width."""
    for recording in (training().close(), refusing(), hostile()):
        shown = report(recording, width)
        assert max(map(len, shown.splitlines())) <= min(max(width, 60), 120)
    assert re.search(r"^  whole step +303 +1 +4 .*12\.3 ms", report(training().close(), width), re.MULTILINE)


def test_long_scripts_are_summed_up() -> None:
    """Of a script with many lines, those with trouble and the busiest are shown, the others in one sentence."""
    builder = RecordingBuilder(meta=META)
    for number in range(1, 101):
        line = builder.site(SCRIPT, number, "main", f"line_{number}()")
        for _ in range(number):
            builder.entry("aten::mm", start_ns=0, site=line)
    builder.entry("aten::item", start_ns=0, site=builder.site(SCRIPT, 200, "main", "x.item()"), wait=Wait.ITEM)
    shown = report(builder.close())
    assert "x.item()" in shown
    assert "line_42()" in shown
    assert "line_41()" not in shown
    assert "  41 more lines: 861 on mps.\n" in shown


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal, or not, and collects bytes."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding=encoding, newline="\n")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode(self.encoding)


def test_pipe_gets_the_plain_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a pipe goes the report of 100 columns without control sequences, whatever the terminal's size."""
    monkeypatch.setenv("COLUMNS", "70")
    recording = training().close()
    stream = Terminal(terminal=False)
    print_document(run_document(Story.of(recording), find(recording)), stream)
    assert stream.text == WITH_FINDINGS


def test_terminal_gets_colour_and_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the report is coloured and as wide as that; NO_COLOR and TERM=dumb keep the width only."""
    recording = training().close()
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    expected = render_terminal(Story.of(recording), find(recording), width=70, color=True)
    for variable, value, plain in (("NO_COLOR", "", False), ("NO_COLOR", "1", True), ("TERM", "dumb", True)):
        monkeypatch.setenv(variable, value)
        stream = Terminal(terminal=True)
        print_document(run_document(Story.of(recording), find(recording)), stream)
        assert stream.text == (report(recording, 70) if plain else expected)
        monkeypatch.setenv("NO_COLOR", "")


def test_stream_that_knows_few_characters() -> None:
    """Characters that the stream cannot encode are replaced instead of ending the report."""
    builder = RecordingBuilder(meta=META)
    builder.entry("aten::mm", start_ns=0, site=builder.site(SCRIPT, 1, "main", "größe = x.größe()"))
    stream = Terminal(terminal=False, encoding="ascii")
    print_document(run_document(Story.of(builder.close()), []), stream)
    assert "gr??e = x.gr??e()" in stream.text


PLACES = ("models/transformers/modeling_qwen2_vl.py:1234", "train.py:36")
KINDS = "copy to cpu, synchronize, inside operator"


def shown(*tables: Table, width: int) -> str:
    """A section of these tables."""
    section = Section("waits", "Waits", tables)
    return as_text(Document("", "", "", (), "clean", "Would run.", (section,)), width=width)


@pytest.mark.parametrize("on_mac", [False, True])
def test_no_word_of_the_waits_is_cut(on_mac: bool) -> None:
    """However narrow it is: words, numbers and files are whole; columns of less weight go first, then folders."""
    times = ("101.88 ms",) if on_mac else ("12.33 ms", "1.88 ms")
    hurting = tuple((place, KINDS, "1,120", "202 to 1,302", *times, "1,332 us to 12.66 ms") for place in PLACES)
    belonging = ((PLACES[0], "copy to mps, synchronize", "1,020", "the loop's data on its way to the device"),)
    for width in range(NARROWEST, WIDEST + 1):
        text = shown(hurting_table(hurting, on_mac=on_mac), belonging_table(belonging), width=width)
        lines = text.splitlines()
        assert max(map(len, lines)) <= width
        words = set(text.split())
        assert {"synchronize,", "inside", "operator", "loop's", "device", "1,020", "1,332", "12.66"} <= words, text
        names = {word.rpartition("/")[2] for word in words}
        assert {"waits", "train.py:36"} <= names, text
        if width >= 66:
            assert "modeling_qwen2_vl.py:1234" in names, text
        assert ("operators" in words) == (width >= (102 if on_mac else 91)), text


def test_a_place_without_room() -> None:
    """A file's name that is longer than the line goes on in the next one; it is not cut off."""
    place = f"{'x' * 70}.py:1"
    row = (place, "item", "1", "3", "1 ms", "1 ms", "5 us")
    lines = shown(hurting_table((row,), on_mac=False), width=60).splitlines()
    assert "".join(line[2:].split("  ")[0].strip() for line in lines[6:]) == place
