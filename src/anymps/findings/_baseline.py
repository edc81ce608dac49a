"""A baseline: the findings that a project knows already, in a file of its own.

A finding is known again by its rule, its file as the project names it, its function and the text of its line without
regard to blanks, and not by its line's number: code above it may change. Equal ones are counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from anymps._errors import UsageError
from anymps.findings._model import Finding
from anymps.findings._places import project_path

_VERSION: Final = 1


class Known(NamedTuple):
    """What a known finding is recognised by."""

    id: str
    file: str
    function: str
    source: str


def known_as(finding: Finding, roots: Sequence[str]) -> Known:
    """A finding as a baseline names it; `roots` are directories that files are named from, the first fit counts."""
    site = finding.site
    return Known(finding.id, project_path(site.file, roots), site.function, " ".join(site.source.split()))


def read_baseline(path: Path) -> Counter[Known]:
    """The findings in a baseline, with how often each is known.

    Raises UsageError if the file is missing or is no baseline.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != _VERSION:
            raise UsageError(f"{path} has version {document['version']} of a baseline, this anymps reads {_VERSION}")
        counts: Counter[Known] = Counter()
        for entry in document["findings"]:
            counts[Known(*(str(entry[name]) for name in Known._fields))] += int(entry["count"])
    except FileNotFoundError:
        raise UsageError(f"there is no baseline {path}: make it with --write-baseline") from None
    except OSError as error:
        raise UsageError(f"the baseline {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not a baseline: make one with --write-baseline") from None
    return counts


def write_baseline(path: Path, findings: Iterable[Finding], roots: Sequence[str]) -> int:
    """Write these findings as the known ones, in an order that does not depend on the run; how many they are.

    The file is replaced as a whole. Raises UsageError if it cannot be written.
    """
    counts = Counter(known_as(finding, roots) for finding in findings)
    entries = [{**known._asdict(), "count": count} for known, count in sorted(counts.items())]
    text = json.dumps({"version": _VERSION, "findings": entries}, indent=2, ensure_ascii=False) + "\n"
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        raise UsageError(f"the baseline {path} cannot be written: {error.strerror}") from error
    return sum(counts.values())


def apart(
    findings: Iterable[Finding], baseline: Counter[Known], roots: Sequence[str]
) -> tuple[list[Finding], list[Finding], list[Known]]:
    """The new findings, the known ones, and what the baseline names and the run did not show."""
    left = Counter(baseline)
    new: list[Finding] = []
    known: list[Finding] = []
    for finding in findings:
        name = known_as(finding, roots)
        if left[name] > 0:
            left[name] -= 1
            known.append(finding)
        else:
            new.append(finding)
    return new, known, sorted(left.elements())
