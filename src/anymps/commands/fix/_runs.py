"""Runs a script in separate processes for `anymps fix`, and reads the results."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymps._errors import UsageError
from anymps._own_process import own_command
from anymps._text import estimate, last_line
from anymps.commands._judge import Judge
from anymps.commands._show import say
from anymps.commands.isolated import FACTS, Order, error_of
from anymps.findings import Finding
from anymps.forecast import HostTimes, host_times, try_forecast
from anymps.plan import run_isolated
from anymps.record import Recording, Site
from anymps.report import size

if TYPE_CHECKING:
    from anymps.fix import Program, Ran

_TRACEBACK = "Traceback (most recent call last):"
# What Python prints of an exception that ends nothing, such as one of a `__del__` at the end.
_IGNORED = re.compile(
    r"^Exception ignored.*\nTraceback \(most recent call last\):\n(?:[ \t].*\n)*(?:\S.*\n?)?", re.MULTILINE
)
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


@dataclass
class Progress:
    """Numbers the runs: `run 2 of 3, about 30 s: with 4 changes`."""

    planned: int = 3
    number: int = 0

    def run(self, what: str, seconds: float = 0.0) -> None:
        """A run begins; `seconds` is how long it may take, 0 if nobody knows."""
        self.number += 1
        of = f" of {self.planned}" if self.number <= self.planned else ""
        about = f", about {max(1, round(seconds))} s" if seconds else ""
        say(f"run {self.number}{of}{about}: {what}")


@dataclass(frozen=True)
class Tried:
    """A run without a recording: what it computed, and on which types of devices its model was last.

    `cut` says whether it was ended for its time, `limit` the seconds that it had.
    """

    ran: Ran
    places: tuple[str, ...]
    cut: bool = False
    limit: float = 0.0


@dataclass(frozen=True)
class _Ended:
    """A process that has run the script: its folder's files, its exit status (None: cut), and what it printed."""

    folder: Path
    status: int | None
    printed: str
    errors: str
    seconds: float

    @property
    def facts(self) -> dict[str, Any]:
        file = self.folder / FACTS
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


@dataclass(frozen=True)
class Runs:
    """Runs `words`, a script and its arguments, each time in a process that may take `seconds`."""

    words: tuple[str, ...]
    order: Order
    seconds: float

    def run(
        self,
        program: Program,
        keep: Callable[[Path, Ran], None] | None = None,
        like: HostTimes | None = None,
    ) -> tuple[Ran, tuple[Finding, ...]]:
        """Run a program's texts with the same seeds and read what it did; its findings beside it.

        `keep` is given the recording, and what was read of it. `like` are the host's times in the step of the unchanged
        script, which count for what this program does alike.

        Raises UsageError, in one line, where the run could not start or did not end in time.
        """
        with self._ended(program, self.order, self.words, self.seconds) as ended:
            if ended.status is None:
                raise UsageError(
                    f"the script did not end within {self.seconds:g} s: shorten it, such as with --steps 10, or "
                    "allow more --seconds"
                )
            recording = ended.folder / "recording"
            if not recording.exists():
                raise UsageError(f"the script could not be run: {last_line(ended.errors)}")
            with Recording.open(recording) as opened:
                findings = tuple(Judge(program.main.path).judge(opened).findings)
                ending = opened.meta.get("ending")
                ran = self._read(program, ended, ending if isinstance(ending, dict) else {})
                ran = replace(
                    ran,
                    rules=Counter(finding.id for finding in findings),
                    told=told_of(opened, findings, like),
                    host=host_of(opened),
                    reached=None if ran.reached is None else ran.reached | _sites(opened),
                    found=_places(findings),
                )
            if keep is not None:
                keep(recording, ran)
        return ran, findings

    def try_out(
        self,
        program: Program,
        *,
        added: Sequence[str] = (),
        device: str = "mps",
        cuda_as_mps: bool | None = None,
        steps: int | None = None,
        seconds: float | None = None,
    ) -> Tried:
        """Run a program without a recording, with words added to its command line, for a few steps or to its end.

        One that uses more than `seconds` of the processor is ended, and what it has done by then is reported.
        """
        order = replace(self.order, recorded=False, device=device, steps=steps or self.order.steps)
        if cuda_as_mps is not None:
            order = replace(order, asked=replace(order.asked, cuda_as_mps=cuda_as_mps))
        limit = min(self.seconds, seconds or self.seconds)
        with self._ended(program, order, (*self.words, *added), limit, patient=seconds is not None) as ended:
            facts = ended.facts
            error = str(facts.get("error", "")) or ("" if facts else last_line(ended.errors))
            ran = self._read(program, ended, {})
            if ended.status is None:
                error = ""  # it was cut, whatever it made of that
            places = tuple(facts.get("places", ()))
            return Tried(replace(ran, error=error), places, ended.status is None, limit)

    def _read(self, program: Program, ended: _Ended, ending: dict[str, object]) -> Ran:
        from anymps.fix import Ran, numbers

        facts = ended.facts
        error = error_of(ending) or (f"exit status {ended.status}" if ended.status else "")
        trail = ((str(file), int(line)) for file, line in facts.get("trail", ()))
        return Ran(
            error=error,
            losses=tuple(map(float, facts.get("losses", ()))),
            printed=numbers(ended.printed),
            rules={},
            trail=tuple((file, line) for file, line in trail if program.owns(Site(file, line))),
            worker=_of_worker(ended.errors) if error else "",
            reached=frozenset((file, line) for file, line in facts["reached"]) if facts else None,
            seconds=ended.seconds,
            places=tuple(facts.get("places", ())),
            modules=tuple(facts.get("modules", ())),
            used=bool(facts.get("used")),
        )

    @contextmanager
    def _ended(
        self, program: Program, order: Order, words: Sequence[str], seconds: float, *, patient: bool = False
    ) -> Iterator[_Ended]:
        from anymps.fix import later_uses, new_statements

        with tempfile.TemporaryDirectory(prefix="anymps-fix-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            changed = {}
            for number, (path, script) in enumerate(program.changed.items()):
                text = folder / f"text{number}.py"
                text.write_bytes(script.data)
                changed[str(path)] = str(text)
            watch = {}
            for old, new in program.differences():
                lines = set(new_statements(old.text, new.text))
                uses = (uses for line in tuple(lines) for uses in later_uses(new.text, line).values())
                watch[str(new.path.resolve())] = sorted(lines.union(*uses))
            order = replace(order, folder=name, changed=changed, watch=watch if order.recorded else {})
            command = own_command("fix", "--prove", order.to_json(), *words)
            output, errors = folder / "output", folder / "errors"
            began = time.monotonic()
            with output.open("wb") as out, errors.open("wb") as error:
                status = run_isolated(command, out, seconds, error, patient=patient)
            took = time.monotonic() - began
            printed, told = (file.read_text(encoding="utf-8", errors="replace") for file in (output, errors))
            yield _Ended(folder, status, printed, told, took)


def host_of(recording: Recording) -> HostTimes:
    """The host's times in the typical step, with which those of another run are compared."""
    predicted = try_forecast(recording)
    return host_times(predicted.happenings, predicted.busy) if predicted is not None else host_times((), 0.0)


def told_of(recording: Recording, findings: Sequence[Finding], like: HostTimes | None = None) -> dict[str, str]:
    """The rows of the table of before and after. What a run does `like` the one before takes the same time in both."""
    shares = recording.step_table().typical
    told = {"findings": f"{len(findings):,}"}
    if shares:
        told["operators a step"] = f"{sum(share.on_mps for share in shares):,.0f}"
        told["on the CPU, a step"] = f"{sum(share.on_cpu for share in shares):,.0f}"
        told["waits a step"] = f"{sum(share.waits for share in shares):,.0f}"
    peak = recording.memory_story.peak
    if peak is not None:
        told["peak memory"] = size(peak.allocated)
    predicted = try_forecast(recording, like=like)
    if predicted is not None and not predicted.no_time:
        about, span = estimate(predicted.time.seconds, predicted.time.low, predicted.time.high)
        told["a step on the Mac"] = f"about {about} ({span})"
    return told


def _places(findings: Sequence[Finding]) -> frozenset[tuple[str, str, int]]:
    sites = ((finding.id, finding.site) for finding in findings)
    return frozenset((rule, os.path.realpath(site.file), site.line) for rule, site in sites if site.known)


def _sites(recording: Recording) -> frozenset[tuple[str, int]]:
    """The lines at which anything is recorded, those of the script's processes among them."""
    return frozenset((os.path.realpath(line.file), line.line) for line in recording.lines() if line.file)


def _of_worker(errors: str) -> str:
    """The traceback of a process that the script started; the script's own, with what led to it, is the last."""
    blocks = _IGNORED.sub("", errors).split(_TRACEBACK)
    own = len(blocks) - 1
    while own > 1 and blocks[own - 1].rstrip().endswith(_CHAINED):
        own -= 1
    if own < 2:
        return ""
    lines = [_TRACEBACK]
    for line in blocks[1].splitlines()[1:]:
        lines.append(line)
        if line and not line[0].isspace():
            break  # the exception itself
    return "\n".join(lines)
