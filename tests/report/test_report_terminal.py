"""The terminal report: its verdicts, its width and colours, and that nothing in a script can disturb it."""

from __future__ import annotations

import io
import re

import pytest

from anymps.findings import Story, find
from anymps.record import Fate, Flag, Recording, RecordingBuilder, RefusalKind, Wait
from anymps.report import print_document, render_terminal, report_pieces, run_document
from anymps.report._words import limits
from anymps.report.document import NARROWEST, WIDEST, Document, Section, Table, as_text
from anymps.report.run._waits import belonging_table, hurting_table
from recordings import META, SCRIPT, hostile, refusing, training


def report(recording: Recording, width: int = 100) -> str:
    """The plain report with the recording's own findings."""
    return render_terminal(Story.of(recording), find(recording), width=width)


def test_report_of_a_clean_loop() -> None:
    """A clean loop says so, and its report holds nothing that is not there."""
    lines = report(training(clean=True).close()).splitlines()
    assert lines[:2] == ["Would run on M3 Pro 18GB.", "No findings."]
    (head,) = [line for line in lines if line.startswith("  phase ")]
    assert re.split("  +", head.strip()) == ["phase", "on mps", "on CPU", "waits", "to mps", "to CPU", "time", "share"]
    at = lines.index("Waits  all fine as they are")
    assert lines[at + 2] == "  train.py:31  copy to mps  20  the loop's data on its way to the device"
    assert not {"What to change", "  line  on mps  on CPU  switches  waits  source"} & set(lines)


def test_the_first_call_of_a_package() -> None:
    """Its line and its time, and the package's size where its file was still there."""
    builder = training(clean=True)
    line = builder.site("/home/me/project/serve.py", 5, "main", "compiled(x)")
    for size in (3 << 20, 0):
        builder.note("package", start_ns=size, site=line, name="model.pt2", bytes=size, seconds=7.1)
    took = "took 7.10 s on this machine: a package's Metal kernels are compiled in it."
    assert sorted(limits(Story.of(builder.close()), brief=True))[-2:] == [
        f"The first call of model.pt2 (3 MiB, serve.py:5) {took}",
        f"The first call of model.pt2 (serve.py:5) {took}",
    ]


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
    assert stream.text == report(recording)


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
