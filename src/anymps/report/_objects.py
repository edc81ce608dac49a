"""What forms for programs have in common: a finding, a line of code and a step's share as JSON objects."""

from __future__ import annotations

from anymps.findings import Finding
from anymps.record import PhaseShare, Site


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


def share_object(share: PhaseShare) -> dict[str, object]:
    """What a phase holds of a step."""
    return {
        "phase": share.phase.label,
        "on_mps": share.on_mps,
        "views": share.views,
        "on_cpu": share.on_cpu,
        "waits": share.waits,
        "bytes_to_mps": share.bytes_to_mps,
        "bytes_to_cpu": share.bytes_to_cpu,
        "fallback_bytes": share.fallback_bytes,
        "time_ns": share.time_ns,
    }
