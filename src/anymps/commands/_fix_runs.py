"""Runs of a script in processes of their own for `anymps fix`, and what is read from each."""

from __future__ import annotations

__all__ = ["Runs"]

import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._errors import UsageError
from anymps._own_process import own_command
from anymps._units import duration, duration_range
from anymps.commands._judge import NOTHING_CHOSEN, Judge
from anymps.commands._proof_session import LOSSES, Order
from anymps.findings import Finding
from anymps.forecast import try_forecast
from anymps.plan import run_apart
from anymps.record import Recording
from anymps.report import size

if TYPE_CHECKING:
    from anymps.fix import Program, Ran

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")


@dataclass(frozen=True)
class Runs:
    """Runs `words`, a script and its arguments, and keeps the findings of the last run in `found`."""

    words: tuple[str, ...]
    order: Order
    seconds: float

    def without_cuda(self) -> Runs:
        """Runs in which nothing answers for CUDA."""
        return replace(self, order=replace(self.order, cuda_as_mps=False))

    def run(self, program: Program) -> tuple[Ran, tuple[Finding, ...]]:
        """Run a program's texts with the same seeds and read what it did; its findings beside it.

        Raises UsageError, in one line, where the run could not start or did not end in time.
        """
        from anymps.fix import Ran

        with tempfile.TemporaryDirectory(prefix="anymps-fix-") as folder:
            recording = Path(folder, "recording")
            output, errors = Path(folder, "output"), Path(folder, "errors")
            changed = {}
            for number, (path, script) in enumerate(program.changed.items()):
                text = Path(folder, f"text{number}.py")
                text.write_bytes(script.data)
                changed[str(path)] = str(text)
            order = replace(self.order, recording=str(recording), changed=changed)
            command = own_command("fix", "--prove", json.dumps(asdict(order)), *self.words)
            with output.open("wb") as out, errors.open("wb") as error:
                status = run_apart(command, out, self.seconds, error)
            printed = output.read_text(encoding="utf-8", errors="replace")
            if status is None:
                raise UsageError(
                    f"the script did not end within {self.seconds:g} s: give it less to do, such as --steps 10, "
                    "or more --seconds"
                )
            if not recording.exists():
                told = errors.read_text(encoding="utf-8", errors="replace")
                raise UsageError(f"the script could not be run: {_last_line(told)}")
            losses = Path(folder, LOSSES)
            values = json.loads(losses.read_text(encoding="utf-8")) if losses.exists() else []
            with Recording.open(recording) as opened:
                findings = Judge(program.main.path, NOTHING_CHOSEN).judge(opened).findings
                found = tuple(findings)
                ran = Ran(
                    error=_error(opened, status),
                    losses=tuple(map(float, values)),
                    printed=tuple(float(it) for it in _NUMBER.findall(printed)),
                    rules=Counter(finding.id for finding in found),
                    told=_told(opened, found),
                )
        return ran, found


def _error(recording: Recording, status: int) -> str:
    ending = recording.meta.get("ending")
    ending = ending if isinstance(ending, dict) else {}
    if not ending.get("status") and "exception" not in ending and status == 0:
        return ""
    first = str(ending.get("message", "")).partition("\n")[0]
    return f"{ending.get('exception', f'exit status {status}')} {first}".rstrip()


def _last_line(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip()]
    return lines[-1].removeprefix("anymps: ") if lines else "it gave no reason"


def _told(recording: Recording, findings: Sequence[Finding]) -> dict[str, str]:
    """The rows of the table of before and after."""
    shares = recording.step_table().typical
    told = {"findings": f"{len(findings):,}"}
    if shares:
        told["operators a step"] = f"{sum(share.on_mps for share in shares):,.0f}"
        told["on the CPU, a step"] = f"{sum(share.on_cpu for share in shares):,.0f}"
        told["waits a step"] = f"{sum(share.waits for share in shares):,.0f}"
    peak = recording.memory_story.peak
    if peak is not None:
        told["peak memory"] = size(peak.allocated)
    predicted = try_forecast(recording)
    if predicted is not None and not predicted.no_time:
        time = predicted.time
        span = duration_range(1e9 * time.low, 1e9 * time.high)
        told["a step on the Mac"] = f"about {duration(1e9 * time.seconds)} ({span})"
    return told
