"""`anymps run --live`: steps, waits and memory on standard error while the script runs."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live as Region
from rich.text import Text

from anymps._text import duration

if TYPE_CHECKING:
    from anymps.capture import Capture, Progress

PLAIN_SECONDS = 10.0
"""How often a line is written where there is no terminal to draw on."""


class Live:
    """Shows the progress of a run: on a terminal's last line, redrawn each second; elsewhere in plain lines.

    The script's output is not redirected: in a terminal rich draws around it.
    """

    def __init__(self, capture: Capture, stream: TextIO) -> None:
        self._capture, self._stream = capture, stream
        self._region: Region | None = None
        self._ended = threading.Event()
        self._said = ""

    def start(self) -> None:
        """Begin to show."""
        if not self._stream.isatty():
            threading.Thread(target=self._beat, name="anymps-live", daemon=True).start()
            return
        stdout = sys.stdout
        self._region = Region(
            get_renderable=lambda: Text(words(self._capture.progress), style="dim"),
            console=Console(file=self._stream, highlight=False),
            refresh_per_second=1,
            transient=True,
            redirect_stdout=stdout is not None and stdout.isatty(),  # a file that it goes to is no place to draw on
            redirect_stderr=True,
        )
        self._region.start()

    def stop(self) -> None:
        """Show no more; in a terminal nothing of it stays."""
        self._ended.set()
        if self._region is not None:
            self._region.stop()

    def _beat(self) -> None:
        while not self._ended.wait(PLAIN_SECONDS):
            self.say()

    def say(self) -> None:
        """One plain line, if it is another than the last one."""
        line = words(self._capture.progress)
        if line != self._said:
            self._said = line
            try:
                print(f"anymps: {line}", file=self._stream, flush=True)
            except (OSError, ValueError):  # nobody reads it now
                self._ended.set()


def words(progress: Progress) -> str:
    """`step 120, 34.5 ms a step, 2 waits a step, memory 1.5 GiB, at most 2.1 GiB`."""
    from anymps.report import plural, size

    if not progress.begun:
        return f"{plural(progress.steps, 'step')}, recording has not begun"
    parts = [f"step {progress.steps:,}"]
    if progress.recorded:
        waits = progress.waits / progress.recorded
        parts.append(f"{duration(progress.step_ns)} a step")
        parts.append(f"{waits:.1f}".removesuffix(".0") + " waits a step")
    elif progress.waits:
        parts.append(plural(progress.waits, "wait"))
    parts.append(f"memory {size(progress.allocated) or 'none'}, at most {size(progress.peak) or 'none'}")
    return ", ".join(parts) + (", recorded" if progress.over else "")
