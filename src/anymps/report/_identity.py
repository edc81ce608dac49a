"""Identifies a finding in another recording: the same problem in the same place, even if its line has moved."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from anymps.findings import Finding
from anymps.report._text import path

Key = tuple[str, str, str, str, str]
"""Rule, file from the directory of the run, function, the line's text, operator."""


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
