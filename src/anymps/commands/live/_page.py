"""`anymps run --live` with a page: a separate process rewrites the page while the script runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anymps
from anymps._settings import Settings
from anymps.children import CHILDREN_VARIABLE
from anymps.commands.live._terminal import Watched
from anymps.report import Output

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
        self, capture: Watched, recording: Path, pages: Sequence[Output], start: Path, asked: Settings
    ) -> None:
        self._capture = capture
        self._recording = recording.absolute()
        self._order: dict[str, object] = {
            "pages": [os.path.abspath(page.path) for page in pages],
            "start": os.path.abspath(start),
            "baseline": os.path.abspath(asked.baseline) if asked.baseline is not None else None,
            "write_baseline": asked.write_baseline,
            "allow_unused": asked.allow_unused,
        }
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._writer: subprocess.Popen[str] | None = None
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
            facts = {
                "step": self._capture.progress.steps,
                "elapsed": elapsed(before - self._began),
                "refresh": round(pause),
            }
            self._writer = self._write({"recording": str(self._recording), "running": facts})
            if self._writer is None:
                return
            if self._ended.is_set():  # since the question above
                self._writer.terminate()
            self._writer.wait()
            pause = pause_after(time.monotonic() - before)

    def _write(self, facts: dict[str, object]) -> subprocess.Popen[str] | None:
        """A process that makes the pages; None if none can be started."""
        environment = {name: value for name, value in os.environ.items() if name != CHILDREN_VARIABLE}
        try:
            # From the package's own folder, so that no file beside the script is taken for a module.
            writer = subprocess.Popen(
                [sys.executable, "-m", "anymps.commands.live._page_writer"],
                cwd=Path(anymps.__file__).parents[1], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, text=True,
            )  # fmt: skip
        except OSError:
            return None
        assert writer.stdin is not None
        with suppress(OSError), writer.stdin:  # one that has died takes nothing
            json.dump({**self._order, **facts}, writer.stdin)
        return writer
