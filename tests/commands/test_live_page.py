"""A page that is written while the run goes on: what it says, and when it is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anymps.commands.live._page import elapsed, pause_after
from anymps.commands.live._page_writer import write_pages
from anymps.record import RecordingBuilder, RecordingWriter
from anymps.report import Running
from processes import PATIENCE, clean_environment

REFRESH = '<meta http-equiv="refresh" content="7">'


def unfinished(folder: Path, calls: int = 1) -> Path:
    """The recording of a run that goes on."""
    path = folder / "run.anymps"
    builder = RecordingBuilder(RecordingWriter(path, {"torch_version": "2.13.0", "mac": "M1 8GB", "virtual": True}))
    for number in range(calls):
        builder.entry("aten::mul", start_ns=10 * number, duration_ns=5)
    builder.flush()
    return path


def order(recording: Path, page: Path, **facts: object) -> dict[str, object]:
    """What the process that makes pages is told."""
    usual = {"baseline": None, "write_baseline": False, "allow_unused": False}
    return {"recording": str(recording), "pages": [str(page)], "start": str(page.parent), **usual, **facts}


def test_pages_keep_within_a_twentieth_of_the_time() -> None:
    """A short one is written every five seconds, a long one more rarely."""
    assert [pause_after(cost) for cost in (0.0, 0.2, 3.0)] == [5.0, 5.0, pytest.approx(57.0)]


def test_words() -> None:
    """Time as hours, minutes and seconds; a run without an optimizer has no steps to tell."""
    assert [elapsed(seconds) for seconds in (0, 151.9, 36_000)] == ["00:00:00", "00:02:31", "10:00:00"]
    again = "This page reloads until the run ends."
    assert Running(1200, "00:02:31", 7).words == f"Still running: step 1,200, 00:02:31. {again}"
    assert Running(0, "00:02:31", 7).words == f"Still running: 00:02:31. {again}"


def test_the_page_says_that_the_run_goes_on(tmp_path: Path) -> None:
    """It loads itself anew, and calls the run neither cut short nor whole; the last one says none of that."""
    page, recording = tmp_path / "page.html", unfinished(tmp_path)
    write_pages(order(recording, page, running={"step": 120, "elapsed": "00:02:31", "refresh": 7}))
    shown = page.read_text(encoding="utf-8")
    assert REFRESH in shown
    assert '<p class="running">Still running: step 120, 00:02:31.' in shown
    assert "So far MPS on M1 8GB rejected nothing." in shown
    assert "stops in the middle" not in shown
    write_pages(order(recording, page))
    shown = page.read_text(encoding="utf-8")
    assert "refresh" not in shown
    assert "till running" not in shown
    assert "The recording stops in the middle of the run; until then MPS on M1 8GB rejected nothing." in shown


def test_no_page_before_anything_ran(tmp_path: Path) -> None:
    """A page without content would replace that of the run before."""
    page = tmp_path / "page.html"
    running = {"step": 0, "elapsed": "00:00:05", "refresh": 5}
    write_pages(order(unfinished(tmp_path, calls=0), page, running=running))
    assert not page.exists()


def test_a_recording_that_cannot_be_read_keeps_the_page(tmp_path: Path) -> None:
    """The process ends without a word, and nothing changes."""
    page, damaged = tmp_path / "page.html", tmp_path / "run.anymps"
    page.write_text("as it was")
    damaged.write_text("no recording")
    answer = subprocess.run(
        [sys.executable, "-m", "anymps.commands.live._page_writer"], input=json.dumps(order(damaged, page)),
        env=clean_environment(), capture_output=True, check=False, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", "")
    assert page.read_text() == "as it was"
