"""A page that is written while the run goes on: what it says, and when it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps import RecordingError
from anymps._settings import Settings
from anymps.commands.live._page import elapsed, pause_after, write_pages
from anymps.record import RecordingBuilder, RecordingWriter
from anymps.report import Running

REFRESH = '<meta http-equiv="refresh" content="7">'


def unfinished(folder: Path, calls: int = 1) -> Path:
    """The recording of a run that goes on."""
    path = folder / "run.anymps"
    builder = RecordingBuilder(RecordingWriter(path, {"torch_version": "2.13.0", "mac": "M1 8GB", "virtual": True}))
    for number in range(calls):
        builder.entry("aten::mul", start_ns=10 * number, duration_ns=5)
    builder.flush()
    return path


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
    """It loads itself anew, and calls the run neither cut short nor whole."""
    page, recording = tmp_path / "page.html", unfinished(tmp_path)
    write_pages(recording, [page], tmp_path, Settings(), Running(120, "00:02:31", 7))
    shown = page.read_text(encoding="utf-8")
    assert REFRESH in shown
    assert '<p class="running">Still running: step 120, 00:02:31.' in shown
    assert "So far MPS on M1 8GB rejected nothing." in shown
    assert "stops in the middle" not in shown


def test_no_page_before_anything_ran(tmp_path: Path) -> None:
    """A page without content would replace that of the run before."""
    page = tmp_path / "page.html"
    write_pages(unfinished(tmp_path, calls=0), [page], tmp_path, Settings(), Running(0, "00:00:05", 5))
    assert not page.exists()


def test_a_recording_that_cannot_be_read_keeps_the_page(tmp_path: Path) -> None:
    """Nothing changes."""
    page, damaged = tmp_path / "page.html", tmp_path / "run.anymps"
    page.write_text("as it was")
    damaged.write_text("no recording")
    with pytest.raises(RecordingError):
        write_pages(damaged, [page], tmp_path, Settings(), Running(1, "00:00:05", 5))
    assert page.read_text() == "as it was"
