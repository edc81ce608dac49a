"""The process that writes the page of a growing recording: `python -m anymps.commands.live._page_writer`.

Standard input names, as JSON, the recording, the pages, what chooses the findings, and how far the run is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from anymps._errors import AnympsError
from anymps._settings import Settings
from anymps.commands._judge import Judge
from anymps.findings import Story, unused
from anymps.record import Recording
from anymps.report import Running, report_pieces, write_file


def write_pages(order: dict[str, Any]) -> None:
    """Write each page whole or not at all; none while nothing has reached mps.

    Raises AnympsError if the recording cannot be read, or a page cannot be written.
    """
    facts = order.get("running")
    running = None if facts is None else Running(facts["step"], facts["elapsed"], facts["refresh"])
    baseline = order["baseline"]
    asked = Settings(
        baseline=None if baseline is None else Path(baseline),
        write_baseline=order["write_baseline"],
        allow_unused=order["allow_unused"],
    )
    judge = Judge(Path(order["start"]), asked)
    with Recording.open(order["recording"]) as recording:
        if running is not None and unused(recording):
            return
        findings = judge.judge(recording).findings
        story = Story.of(recording)
        for page in order["pages"]:
            write_file(report_pieces("html", story, findings, running=running), Path(page))


def _main() -> int:
    # An exception, so that what is half written is taken away.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if hasattr(os, "nice"):
        os.nice(10)
    try:
        write_pages(json.load(sys.stdin))
    except (AnympsError, ValueError):  # the run says at its end what is wrong; there will be a next page before
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
