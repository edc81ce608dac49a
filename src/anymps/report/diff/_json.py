"""A comparison as JSON, by the schema in `docs/schema/diff-1.json`."""

from __future__ import annotations

from anymps.findings import Finding, Story
from anymps.report._objects import as_json, finding_object, fingerprints, record_object
from anymps.report._text import clean
from anymps.report.diff._compare import Diff


def render_diff_json(diff: Diff) -> str:
    """The comparison."""
    before, after = diff.before.run.directory, diff.after.run.directory
    content = {
        "before": _side(diff.before),
        "after": _side(diff.after),
        "other_script": diff.other_script,
        "findings": {
            "gone": _findings(diff.gone, before),
            "new": _findings(diff.new, after),
            "changed": [
                {"before": _findings([old], before)[0], "after": _findings([new], after)[0]}
                for old, new in diff.changed
            ],
            "same": diff.same,
        },
        "step": [
            {
                "phase": name,
                "before": {**record_object(row.before), "phase": name},
                "after": {**record_object(row.after), "phase": name},
                "predicted_seconds": {"before": row.on_mac[0], "after": row.on_mac[1]} if row.on_mac else None,
            }
            for row in diff.phases
            for name in [row.phase.label if row.phase is not None else None]
        ],
        "operators": {
            "now_on_cpu": diff.now_on_cpu,
            "now_native": diff.now_native,
            "no_longer_called": diff.no_longer_called,
        },
        "memory_peak_bytes": {"before": diff.memory_peaks[0], "after": diff.memory_peaks[1]},
    }
    return as_json("diff", content)


def _side(story: Story) -> dict[str, object]:
    run = {name: clean(getattr(story.run, name)) for name in ("script", "directory", "mac", "torch_version")}
    steps = {"complete_steps": story.complete_steps, "complete": story.complete}
    return {**run, "calls": story.call_count, **steps}


def _findings(findings: list[Finding] | tuple[Finding, ...], directory: str) -> list[dict[str, object]]:
    return [finding_object(*pair) for pair in zip(findings, fingerprints(findings, directory), strict=True)]
