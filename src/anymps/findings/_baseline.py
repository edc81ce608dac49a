"""A baseline: a file with the findings that a project already knows. Equal ones are counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anymps._atomic import replace_text
from anymps._errors import UsageError
from anymps._numbers import read_json
from anymps.record import Known, known_as, known_from

if TYPE_CHECKING:
    from anymps.findings._model import Finding

_VERSION: Final = 1
_LARGEST: Final = 64 << 20  # bytes of a baseline
_MOST: Final = 1_000_000  # findings of one kind at one line
_KEYS: Final = ("id", "file", "function", "source")  # those of `Known` in the file


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


def split_by_baseline(
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
