"""Which findings count: settings, comments in the code and a baseline, applied in this order.

A baseline is a file with the findings that a project already knows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from anymps._atomic import replace_text
from anymps._errors import UsageError
from anymps._numbers import read_json
from anymps._paths import project_path
from anymps.findings._comments import suppress
from anymps.findings._model import Finding
from anymps.findings._settings import Settings
from anymps.record import Known, Recording, known_as, known_from

_VERSION: Final = 1
_LARGEST: Final = 64 << 20  # bytes of a baseline
_MOST: Final = 1_000_000  # findings of one kind at one line
_KEYS: Final = ("id", "file", "function", "source")  # those of `Known` in the file


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
    new, known, gone = _split(kept, baseline, roots) if baseline is not None else (kept, [], [])
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


def read_baseline(path: Path) -> Counter[Known]:
    """The findings in a baseline, with how often each is known.

    Raises UsageError if the file is missing or is no baseline.
    """
    try:
        if path.exists() and (not path.is_file() or path.stat().st_size > _LARGEST):
            raise ValueError
        document = read_json(path.read_text(encoding="utf-8"))
        version = document["version"]
        if isinstance(version, int) and not isinstance(version, bool) and version != _VERSION and 0 < version < 1000:
            raise UsageError(f"{path} has version {version} of a baseline, this anymps reads {_VERSION}")
        if version != _VERSION:
            raise ValueError
        counts: Counter[Known] = Counter()
        for entry in document["findings"]:
            counts[_known(entry)] += _count(entry["count"])
    except FileNotFoundError:
        raise UsageError(f"there is no baseline {path}: make it with --write-baseline") from None
    except OSError as error:
        raise UsageError(f"the baseline {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{path} is not a baseline: make one with --write-baseline") from None
    return counts


def _known(entry: dict[str, object]) -> Known:
    texts = [entry[name] for name in _KEYS]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    return known_from(*map(str, texts))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MOST:
        raise ValueError
    return value


def write_baseline(path: Path, findings: Iterable[Finding], roots: Sequence[str]) -> int:
    """Write these findings as the known ones, in an order that does not depend on the run; how many they are.

    The file is replaced as a whole. Raises UsageError if it cannot be written.
    """
    counts = Counter(known_as(finding.id, finding.site, roots) for finding in findings)
    entries = [{**dict(zip(_KEYS, known, strict=True)), "count": count} for known, count in sorted(counts.items())]
    text = json.dumps({"version": _VERSION, "findings": entries}, indent=2, ensure_ascii=False) + "\n"
    try:
        replace_text(path, text)
    except OSError as error:
        raise UsageError(f"the baseline {path} cannot be written: {error.strerror or error}") from error
    return sum(counts.values())


def _split(
    findings: Iterable[Finding], baseline: Counter[Known], roots: Sequence[str]
) -> tuple[list[Finding], list[Finding], list[Known]]:
    """The new findings, the known ones, and what the baseline names, each once, that the run did not show so often."""
    left = Counter(baseline)
    new: list[Finding] = []
    known: list[Finding] = []
    for finding in findings:
        name = known_as(finding.id, finding.site, roots)
        if left[name] > 0:
            left[name] -= 1
            known.append(finding)
        else:
            new.append(finding)
    return new, known, sorted(name for name, count in left.items() if count > 0)
