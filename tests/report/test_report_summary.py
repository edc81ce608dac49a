"""The short report at the end of a run: whole texts, and that nothing in a script can disturb it."""

from __future__ import annotations

import io
from dataclasses import replace

from anymps.findings import Severity, Story, find
from anymps.record import Recording, RecordingBuilder, RefusalKind
from anymps.report import print_summary, render_summary, render_terminal
from recordings import META, hostile, refusing, training


def summary(recording: Recording, whole: str = "anymps report") -> str:
    """The plain short report with the recording's own findings."""
    return render_summary(Story.of(recording), find(recording), whole=whole)


WITH_FINDINGS = """\
Would run on M3 Pro 18GB, with 1 operator on the CPU. 2 warnings.
Change first: nets/model.py:19, costs about 332 to 660 us a step on a Mac
  MPS102  Operator runs on the CPU in the loop
  line    x = x * torch.heaviside(x.detach(), self.zero)
  fix     Write `torch.where(x == 0, v, (x > 0).to(x.dtype))` for `torch.heaviside(x, v)`. torch
          2.15 has an MPS kernel for it.
Then:
  MPS201 warning  train.py:36  Value read back in every step
"""

CLEAN = """\
Would run on M3 Pro 18GB. No findings.
A step: 302 operators on mps, 0 on the CPU.
Full report: anymps report
"""

REFUSED = """\
Would not run on M3 Pro 18GB: train.py:14 raises TypeError. 1 error.
Change first: train.py:14
  MPS301  float64 on MPS
  line    weights = weights.to(device)
"""


def test_the_first_change_and_the_rest() -> None:
    """The verdict, the costliest line with its fix, one row for each other finding, the step, and the way on."""
    lines = summary(training().close()).splitlines(keepends=True)
    assert "".join(lines[:8]) == WITH_FINDINGS
    assert lines[8].startswith("A step: 303 operators on mps, 1 on the CPU. 2 of a step's 4 waits are needless")
    assert lines[-1] == "Full report: anymps report\n"


def test_nothing_to_change() -> None:
    """Without findings three lines are enough."""
    assert summary(training(clean=True).close()) == CLEAN


def test_a_run_that_a_mac_ends() -> None:
    """A refusal is the first thing to change; a run without a step says nothing of one."""
    shown = summary(refusing())
    assert shown.startswith(REFUSED)
    assert "A step" not in shown


def test_a_line_of_a_package() -> None:
    """Nobody is to edit it: the user's call that led there is what to change, in the other rows and reports as well."""
    builder = RecordingBuilder(meta=META)
    for time, (kind, line, source, caller) in enumerate(
        [
            (RefusalKind.FLOAT64, 360, "result[k] = f.get_tensor(k)", "train.py:8"),
            (RefusalKind.DEVICE, 12, "return x * ones", "train.py:9"),
        ]
    ):
        site = builder.site("/v/lib/python3.11/site-packages/safetensors/torch.py", line, "load_file", source)
        detail = {"caller": caller, "expression": "np.zeros(3)", "name": "k"}
        builder.refusal(kind, "TypeError", "no", operator="aten::copy_", start_ns=time, site=site, detail=detail)
    recording = builder.close()
    shown = summary(recording)
    assert shown.partition("Full report")[0].partition("Change")[2] == (
        " first: train.py:8\n"
        "  MPS301  float64 on MPS\n"
        "  within  safetensors/torch.py:360\n"
        "  fix     The line is in the package safetensors: change the call at train.py:8. Make it float32\n"
        "          before it goes to the device: `.float()`, or `dtype=torch.float32` where it is made.\n"
        "Then:\n"
        "  MPS401 error  train.py:9  Tensors on different devices\n"
    )
    first, second = find(recording)
    assert (first.caller, first.change, second.caller) == ("train.py:8", None, "train.py:9")
    assert second.fix == "Move it to the device of the others before the call at train.py:9."
    assert "Change first: train.py:8 (MPS301)." in render_terminal(Story.of(recording), [first, second], width=200)


def test_what_has_no_line() -> None:
    """A finding about the whole run stands without a place, and below no `Then:` if nothing comes before."""
    ending = {"status": 1, "exception": "SyntaxError", "message": "invalid syntax"}
    ended = RecordingBuilder(meta={**META, "ending": ending}).close()
    assert summary(ended) == (
        "The script ended with SyntaxError, before anything reached mps. 1 note.\n"
        "Findings:\n"
        "  MPS003 note  The script did not finish\n"
        "Full report: anymps report\n"
    )
    (note,) = find(ended)
    error = replace(note, severity=Severity.ERROR)
    for cost, said in (((0, 0), ""), ((3_000_000, 4_000_000), " about 3.00 to 4.00 ms in this run on a Mac")):
        lines = render_summary(Story.of(ended), [replace(error, cost_ns=cost)]).splitlines()
        assert lines[1:3] == [f"Change first:{said}", "  MPS003  The script did not finish"]


def test_more_findings_than_rows() -> None:
    """What does not fit the table is counted."""
    recording = training().close()
    many = [*find(recording), *find(recording) * 3]
    shown = render_summary(Story.of(recording), many, whole="page.html")
    assert "\n  and 2 more\n" in shown
    assert shown.endswith("Full report: page.html\n")


def test_a_place_in_many_folders() -> None:
    """It gives up its first folders, so that the name of its file is not broken over two lines."""
    recording = training().close()
    first, second = find(recording)
    deep = replace(second, site=replace(second.site, file="vector_quantize_pytorch/vector_quantize_pytorch.py"))
    lines = render_summary(Story.of(recording), [first, deep]).splitlines()
    assert lines[lines.index("Then:") + 1] == (
        "  MPS201 warning  .../vector_quantize_pytorch.py:36  Value read back in every step"
    )


def test_nothing_in_a_script_disturbs_it() -> None:
    """Markup and control characters of names and lines are shown as they are written, or made visible."""
    recording = hostile()
    shown = render_summary(Story.of(recording), find(recording), whole="\x1b[2J")
    assert "\x1b" not in shown
    assert "Full report: \\x1b[2J" in shown


def test_a_stream_that_is_no_terminal() -> None:
    """A pipe gets 100 columns and no colour; a character that it cannot take becomes a question mark."""
    recording = training(clean=True).close()
    stream = io.StringIO()
    print_summary(Story.of(recording), [], stream, "anymps report")
    assert stream.getvalue() == CLEAN
