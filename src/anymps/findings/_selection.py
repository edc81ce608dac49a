"""Which findings count: settings, comments in the code and a baseline, applied in this order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from anymps._paths import project_path
from anymps.findings._baseline import split_by_baseline
from anymps.findings._comments import suppress
from anymps.findings._model import Finding
from anymps.findings._settings import Settings
from anymps.record import Known, Recording


@dataclass(frozen=True)
class Selection:
    """`findings` are those to report, in order; `suppressed` a comment leaves out, `known` the baseline.

    `gone` is what the baseline names and the run did not show. Disabled rules have left no trace.
    """

    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...] = ()
    known: tuple[Finding, ...] = ()
    gone: tuple[Known, ...] = ()


def roots(recording: Recording, settings: Settings) -> tuple[str, ...]:
    """The directories that files are named from: the project's, and the one that the recording was made in."""
    return tuple(filter(None, (str(settings.root), recording.run.directory)))


def select(
    findings: Sequence[Finding],
    settings: Settings,
    roots: Sequence[str],
    baseline: Counter[Known] | None = None,
) -> Selection:
    """Sort findings out."""
    wanted = [
        replace(finding, severity=settings.severity.get(finding.id, finding.severity))
        for finding in findings
        if not _disabled(finding, settings, roots)
    ]
    kept, suppressed = suppress(wanted)
    new, known, gone = split_by_baseline(kept, baseline, roots) if baseline is not None else (kept, [], [])
    return Selection(
        tuple(sorted(new, key=lambda finding: finding.order)), tuple(suppressed), tuple(known), tuple(gone)
    )


def _disabled(finding: Finding, settings: Settings, roots: Sequence[str]) -> bool:
    if finding.id in settings.disable:
        return True
    file = project_path(finding.site.file, roots)
    return any(
        finding.id in rules and fnmatchcase(file, pattern) for pattern, rules in settings.per_file_disable.items()
    )
