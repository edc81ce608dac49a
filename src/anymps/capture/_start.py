"""`anymps.record`. Imports torch only when a recording starts."""

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
    """A context manager that records what the device does, in memory or into the file `path`.

    After the block, `.recording` is the `Recording`. It names `script` and `argv`; the defaults are those of this
    process. `source` is how calls are recorded: `"native"`, by the virtual device, or `"observer"`, by an observer of
    all operators, as on a Mac's own device. The default is the best one that the device supports. `steps` is the part
    of the run to record: `(10, 30)` begins after 10 training steps and ends after 30, so it has 20. Optimizers that
    take turns make a step together. By default everything is recorded.

    On entering, raises EnableError without a device, for a source that the device does not support, or while another
    recording runs; BuildError on a Mac without a compiler; RecordingError if `path` cannot be written; and UsageError
    for invalid steps.
    """
    from anymps.capture._recorder import Capture

    return Capture(
        path,
        script=script or (sys.argv[0] if sys.argv else ""),
        argv=sys.argv[1:] if argv is None else argv,
        source=source,
        steps=steps,
    )
