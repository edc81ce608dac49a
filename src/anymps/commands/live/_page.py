"""`anymps run --live` with a page: a separate process rewrites the page while the script runs."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anymps._own_process import own_call
from anymps._settings import Settings
from anymps.report import Output, Running

if TYPE_CHECKING:
    from anymps.capture import Capture

_FIRST_S: Final = 5.0
"""From the start to the first page, and at least from one page to the next."""

_SHARE: Final = 0.05  # of the run's time that may go into pages
_PATIENCE_S: Final = 10.0  # for a writer that was told to stop


def pause_after(cost_s: float) -> float:
    """How long to write no page after one that took `cost_s` seconds, so that pages stay within their share."""
    return max(_FIRST_S, cost_s * (1 / _SHARE - 1))


def elapsed(seconds: float) -> str:
    """`00:02:31`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


class LivePage:
    """Writes pages of a recording while it grows, more and more rarely as that takes longer.

    Another process makes them: the script's own would stand still meanwhile, and its times would be longer.
    """

    def __init__(
        self, capture: Capture, recording: Path, pages: Sequence[Output], start: Path, asked: Settings
    ) -> None:
        self._capture = capture
        files = tuple(Path(page.path).absolute() for page in pages)
        self._given = (recording.absolute(), files, start.absolute(), asked)
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._writer: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._beat, name="anymps-page", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more; a page that is half written does not appear."""
        self._ended.set()
        writer = self._writer
        if writer is not None and writer.poll() is None:
            writer.terminate()
        self._thread.join(_PATIENCE_S)
        if writer is not None and writer.poll() is None:
            writer.kill()

    def _beat(self) -> None:
        pause = _FIRST_S
        while not self._ended.wait(pause):
            before = time.monotonic()
            running = Running(self._capture.progress.steps, elapsed(before - self._began), round(pause))
            try:
                self._writer = subprocess.Popen(
                    own_call(f"{__name__}:write_pages", *self._given, running),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )  # fmt: skip
            except OSError:
                return
            if self._ended.is_set():  # since the question above
                self._writer.terminate()
            self._writer.wait()
            pause = pause_after(time.monotonic() - before)


def write_pages(recording: Path, pages: Sequence[Path], start: Path, asked: Settings, running: Running) -> None:
    """Write each page whole or not at all; none while nothing has reached mps.

    Raises AnympsError if the recording cannot be read, or a page cannot be written.
    """
    from anymps.commands._judge import Judge
    from anymps.findings import Story, unused
    from anymps.record import Recording
    from anymps.report import report_pieces, write_file

    os.nice(10)
    judge = Judge(start, asked)
    with Recording.open(recording) as opened:
        if unused(opened):
            return
        findings, story = judge.judge(opened).findings, Story.of(opened)
        for page in pages:
            write_file(report_pieces("html", story, findings, running=running), page)
