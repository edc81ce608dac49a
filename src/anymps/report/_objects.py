"""What forms for programs have in common: a finding, a line of code and other records as JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum

from anymps.findings import Finding
from anymps.record import MemorySample, Occurrence, OperatorUse, PhaseShare, Refusal, Site


def finding_object(finding: Finding, fingerprint: str) -> dict[str, object]:
    """One finding."""
    return {
        "id": finding.id,
        "severity": finding.severity.label,
        "title": finding.title,
        "site": site_object(finding.site),
        "related_sites": [site_object(site) for site in finding.related_sites],
        "related_as": finding.related_as,
        "count": finding.count,
        "per_step": finding.per_step,
        "cost_ns": list(finding.cost_ns),
        "cost_per_step_ns": list(finding.cost_per_step_ns),
        "what": finding.what,
        "why": finding.why,
        "fix": finding.fix,
        "source": finding.source,
        "processes": list(finding.processes),
        "fingerprint": fingerprint,
    }


def site_object(site: Site) -> dict[str, object] | None:
    """A line of code; null if it is unknown."""
    if not site.known:
        return None
    return {"file": site.file, "line": site.line, "function": site.function, "source": site.source}


def record_object(record: MemorySample | Occurrence | OperatorUse | PhaseShare | Refusal) -> dict[str, object]:
    """What a query tells, each field by its own name: so a field of these is one of the JSON form, too."""
    return {field.name: _plain(getattr(record, field.name)) for field in fields(record)}


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return getattr(value, "label", value.value)
    if isinstance(value, Site):
        return site_object(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value
