"""Helpers of all forms for programs: records as JSON objects, and what identifies a finding in another recording.

That is the same problem in the same place, even if its line has moved.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from anymps._version import __version__
from anymps.findings import Finding
from anymps.record import Site
from anymps.report._text import path

Key = tuple[str, str, str, str, str]
"""Rule, file from the directory of the run, function, the line's text, operator."""

_FINDING: Final = (
    "id", "severity", "title", "site", "related_sites", "related_as", "count", "per_step", "cost_ns",
    "cost_per_step_ns", "what", "why", "fix", "source", "processes",
)  # fmt: skip


def finding_object(finding: Finding, fingerprint: str) -> dict[str, object]:
    """One finding."""
    return {**{name: _plain(getattr(finding, name)) for name in _FINDING}, "fingerprint": fingerprint}


def site_object(site: Site) -> dict[str, object] | None:
    """A line of code; null if it is unknown."""
    if not site.known:
        return None
    return {"file": site.file, "line": site.line, "function": site.function, "source": site.source}


def record_object(record: Any) -> dict[str, object]:
    """The fields of a dataclass by name: each is a field of the JSON form, too."""
    return {field.name: _plain(getattr(record, field.name)) for field in fields(record)}


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return getattr(value, "label", value.value)
    if isinstance(value, Site):
        return site_object(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return record_object(value)
    return dict(value) if isinstance(value, Mapping) else value


def as_json(name: str, content: Mapping[str, object]) -> str:
    """A JSON form, by its schema in `docs/schema`: what it is, then its content; indented by two blanks.

    Plain ASCII: a path may hold bytes that are no UTF-8, and a source line any character at all. The version goes up
    when a field changes its meaning or goes away; new fields do not count.
    """
    generator = {"name": "anymps", "version": __version__}
    head = {"format": f"anymps-{name}", "version": 1, "generator": generator}
    return json.dumps({**head, **content}, indent=2, allow_nan=False) + "\n"


def key(finding: Finding, directory: str | None) -> Key:
    """What stays the same when lines are added above, or when the run is longer: everything but numbers.

    A line whose text is not known is identified by its number instead. Without a directory the file does not count.
    """
    site = finding.site
    source = " ".join(site.source.split()) or str(site.line)
    operator = re.search(r"`([^`]*)`", finding.what)
    file = "" if directory is None else path(site.file, directory)
    return (finding.id, file, site.function, source, operator[1] if operator else "")


def fingerprints(findings: Sequence[Finding], directory: str) -> list[str]:
    """One fingerprint a finding, 32 hexadecimal digits; equal ones are told apart by their order."""
    seen: Counter[Key] = Counter()
    result = []
    for finding in findings:
        identity = key(finding, directory)
        text = "\0".join((*identity, str(seen[identity])))
        seen[identity] += 1
        result.append(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return result
