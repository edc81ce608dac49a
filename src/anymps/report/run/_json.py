"""The report as JSON, by the schema in `docs/schema/report-1.json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anymps.findings import Finding, Story, WaitPlace
from anymps.record import Line, WaitQueue
from anymps.report._checked import numbers_object, own_kernels_object
from anymps.report._objects import as_json, finding_object, fingerprints, record_object, site_object
from anymps.report._predicted import predicted_object, why_no_prediction
from anymps.report._words import limits, verdict

_MOST_LINES = 20  # of those that held memory at its peak

_FACTS = (
    "script", "arguments", "directory", "started", "mac", "mac_details", "virtual", "fallback", "environment",
    "torch_version", "python_version", "platform", "anymps_version", "ending", "wall_seconds", "parts",
)  # fmt: skip


def json_pieces(story: Story, findings: Sequence[Finding], _: str | None = None) -> Iterator[str]:
    """Everything that the other reports show, for programs."""
    yield as_json("report", _report(story, findings))


def _report(story: Story, findings: Sequence[Finding]) -> dict[str, object]:
    marks = fingerprints(findings, story.run.directory)
    return {
        "verdict": verdict(story, findings),
        "run": {name: story.facts[name] for name in _FACTS if name in story.facts},
        "complete": story.complete,
        "calls": story.call_count,
        "calls_without_detail": story.dropped,
        "real_kernels": own_kernels_object(story.run, story.operators),
        "numbers": numbers_object(story.run, story.operators),
        "complete_steps": story.complete_steps,
        "findings": [finding_object(*pair) for pair in zip(findings, marks, strict=True)],
        "step_table": record_object(story.step_table),
        "predicted_step": predicted_object(story.forecast),
        "no_predicted_step": why_no_prediction(story.step_table, story.no_forecast),
        "operators": [record_object(use) for use in story.operators],
        "lines": [_line(line) for line in story.lines],
        "waits": [record_object(wait) for wait in story.wait_calls],
        "wait_queues": [_wait_queue(place, queue) for place in story.waits for queue in place.queues],
        "fallbacks": [record_object(fallback) for fallback in story.fallbacks],
        "refusals": [record_object(refusal) for refusal in story.refusals],
        "memory": [record_object(sample) for sample in story.memory_samples],
        "memory_peak": _memory_peak(story),
        "limits": limits(story),
        **({"gpu_profile": record_object(story.gpu_profile)} if story.gpu_profile is not None else {}),
    }


def _line(line: Line) -> dict[str, object]:
    fused = [{"file": file, "line": number} for file, number in line.fused]
    return {**record_object(line), "file": line.file or None, "fused": fused}


def _wait_queue(place: WaitPlace, queue: WaitQueue) -> dict[str, object]:
    known = queue.measured > 0
    return {
        "site": site_object(queue.site),
        "wait": queue.wait.label,
        "hurts": place.hurts,
        "reason": place.reason,
        "count": queue.count,
        "steps": queue.steps,
        "per_step": queue.per_step,
        "measured": queue.measured,
        "median_operators": queue.operators if known else None,
        "most_operators": queue.most_operators if known else None,
        "host_ns": queue.host_ns if known else None,
        "work_ns": queue.work_ns if known else None,
    }


def _memory_peak(story: Story) -> dict[str, object] | None:
    limits, peak = story.memory_limits, story.memory.peak
    if peak is None:
        return None
    return {
        "time_ns": peak.at_ns,
        "step": peak.step,
        "phase": peak.phase.label,
        "site": site_object(peak.site),
        "allocated_bytes": peak.allocated,
        "rounding_bytes": peak.rounding,
        "heap_bytes": peak.reserved,
        "most_heap_bytes": story.memory.peak_reserved,
        "working_set_bytes": limits.working_set if limits is not None else None,
        "growth_per_step_bytes": story.growth_per_step,
        "by_category": {category.value: size for category, size in peak.by_category.items()},
        "lines": [
            {
                "bytes": line.bytes,
                "requested_bytes": line.requested,
                "buffers": line.count,
                "category": line.category.value,
                "operator": line.operator,
                "site": site_object(line.site),
            }
            for line in peak.by_site()[:_MOST_LINES]
        ],
    }
