"""The way in to recording. Imports torch only when a recording starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anymps.capture._recorder import Capture


def record(
    path: str | os.PathLike[str] | None = None,
    *,
    script: str = "",
    argv: Sequence[str] | None = None,
    source: str | None = None,
    steps: tuple[int, int] | None = None,
) -> Capture:
    """A context manager that records what the device does, into the file `path` or in memory.

    After the block, `.recording` is the `Recording`. `script` and `argv` are noted in it; they default to this
    process's. `source` is who tells the recorder of calls: `"native"` (the virtual device) or `"observer"` (an
    observer of all operators, as on a Mac's own device); by default the best that the device has.
    `steps` is the part of the run to record: `(10, 30)` begins after 10 steps of the program's optimizer and ends
    after 30, so it holds 20; by default everything is recorded.
    Raises EnableError on entering without a device, with a source that it does not have, or while another recording
    runs, BuildError on a Mac without a compiler, RecordingError if `path` cannot be written, and UsageError for steps
    that are none.
    """
    from anymps.capture._recorder import Capture

    return Capture(
        path,
        script=script or (sys.argv[0] if sys.argv else ""),
        argv=sys.argv[1:] if argv is None else argv,
        source=source,
        steps=steps,
    )
