"""Records some steps of a training, judges them and writes the report: the work of all adapters."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from anymps._errors import AnympsError
from anymps._text import tell
from anymps.capture import record
from anymps.findings import Finding, Settings, Severity, Story, find, read_settings, roots, select
from anymps.record import Recording
from anymps.report import plural, print_summary, render_terminal, report_pieces, write_file

if TYPE_CHECKING:
    from anymps.capture import Capture

FIRST: Final = 10
"""How many steps an adapter lets pass before it records, to warm up."""
LAST: Final = 30
"""The step before which it ends."""

Log = Callable[[dict[str, float]], object]
"""Takes the numbers, by name, as `Accelerator.log` does."""


@dataclass(frozen=True)
class Judged:
    """What the recorded steps showed: findings, the numbers for a logger, the report as text, and the files."""

    findings: tuple[Finding, ...]
    numbers: Mapping[str, float]
    text: str
    page: Path
    recording: Path


class Steps:
    """Records training steps `first` to `last`; `finish` writes `report.html` and the other files into `folder`."""

    def __init__(self, first: int, last: int, folder: str | os.PathLike[str], log: Log | None = None) -> None:
        self._steps = (first, last)
        self._folder = Path(folder)
        self._log = log
        self._capture: Capture | None = None
        self._settings: Settings | None = None  # of the project, once begun
        self.judged: Judged | None = None

    def begin(self) -> None:
        """Switch a Mac's device on if need be, and wait for the first step. If that fails, one line says why."""
        from anymps.device import enable, state

        try:
            if state() is None:
                if not _is_mac():
                    return _say("no steps are recorded: this process has no mps device (anymps.enable() makes one)")
                enable(require="real", start_method="system")
            self._settings = read_settings(Path.cwd())
            self._folder.mkdir(parents=True, exist_ok=True)
            self._capture = record(self._folder / "steps.anymps", steps=self._steps).__enter__()
        except (AnympsError, OSError) as error:
            _say(f"no steps are recorded: {str(error).removeprefix('anymps: ')}")

    @property
    def is_over(self) -> bool:
        """Whether the last step is recorded, and `finish` has not been called yet."""
        return self._capture is not None and self._capture.is_over

    def finish(self, error: BaseException | None = None) -> Judged | None:
        """End the recording, write its report and log the numbers. Returns None if nothing was recorded.

        The training continues whatever happens here: a file that cannot be written gives one line, a bug in anymps a
        traceback.
        """
        capture, self._capture = self._capture, None
        if capture is None:
            return None
        capture.__exit__(type(error) if error is not None else None, error, None)
        if not capture.has_begun:
            first, last = self._steps
            made = plural(capture.steps_seen, "training step")
            _say(f"nothing was recorded: the loop made {made}, and the part is {first}:{last}")
            return None
        try:
            self.judged = self._judge(capture.recording)
        except (AnympsError, OSError) as failure:
            _say(failure)
        except Exception:
            traceback.print_exc()
        if self.judged is not None and self._log is not None:
            self._log(dict(self.judged.numbers))
        return self.judged

    def _judge(self, recording: Recording) -> Judged:
        assert self._settings is not None
        found = select(find(recording), self._settings, roots(recording, self._settings)).findings
        story = Story.of(recording)
        text, page = render_terminal(story, found, width=120), self._folder / "report.html"
        write_file([text], self._folder / "report.txt")
        write_file(report_pieces("html", story, found), page)
        print_summary(story, found, sys.stderr, str(page))
        return Judged(found, _numbers(story, found), text, page, self._folder / "steps.anymps")

    def __enter__(self) -> Steps:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(error)


def steps(
    first: int = FIRST, last: int = LAST, *, folder: str | os.PathLike[str] = "anymps", log: Log | None = None
) -> Steps:
    """A context manager around a loop: records and judges its training steps `first` to `last`, and writes a report.

    At the end of the block, `folder` has `report.html`, `report.txt` and the recording `steps.anymps`, the short report
    is on stderr, and `log` is called with the numbers; `Accelerator.log` fits. The object that `as` names has them too,
    as `judged`, which is None if nothing was recorded. Without an mps device the loop runs as usual, and one line says
    so.
    """
    return Steps(first, last, folder, log)


def _numbers(story: Story, findings: tuple[Finding, ...]) -> dict[str, float]:
    """What a logger draws. Times only on a Mac: here they would be this machine's."""
    shares = story.step_table.typical
    peak = story.memory.peak
    numbers: dict[str, Any] = {
        "errors": sum(finding.severity is Severity.ERROR for finding in findings),
        "warnings": sum(finding.severity is Severity.WARNING for finding in findings),
        "needless_waits_per_step": story.in_typical(story.needless(findings)),
        "operators_on_mps_per_step": sum(share.on_mps for share in shares),
        "operators_on_cpu_per_step": sum(share.on_cpu for share in shares),
        "memory_peak_bytes": peak.allocated if peak is not None else 0,
    }
    if story.run.on_mac:
        numbers["step_seconds"] = sum(share.time_ns for share in shares) / 1e9
    return {f"anymps/{name}": float(value) for name, value in numbers.items()}


def _is_mac() -> bool:
    import torch

    return torch.backends.mps.is_available()


def _say(problem: object) -> None:
    tell(f"anymps: {problem}")
