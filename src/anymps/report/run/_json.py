"""The report as JSON, by the schema in `docs/schema/report-1.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from anymps._version import __version__
from anymps.findings import Finding, WaitPlace, growth_per_step, memory_limits, wait_places
from anymps.record import (
    Line,
    MemorySample,
    Occurrence,
    OperatorUse,
    Recording,
    Refusal,
    StepTable,
    WaitQueue,
)
from anymps.report._identity import fingerprints
from anymps.report._numbers import numbers_object
from anymps.report._objects import finding_object, share_object, site_object
from anymps.report._predicted import predicted_object, why_no_prediction
from anymps.report._real_kernels import real_object
from anymps.report._words import fact, limits, verdict

FORMAT: Final = "anymps-report"
VERSION: Final = 1
"""Goes up when a field changes its meaning or goes away; new fields do not count."""

_MOST_LINES = 20  # of those that held memory at its peak

_FACTS = (
    "script", "arguments", "directory", "started", "mac", "mac_details", "virtual", "fallback", "environment",
    "torch_version", "python_version", "platform", "anymps_version", "ending", "wall_seconds", "parts",
)  # fmt: skip


@dataclass(frozen=True)
class JsonRenderer:
    """Everything that the other reports show, for programs; plain ASCII, two spaces of indentation."""

    @property
    def name(self) -> str:
        """`json`."""
        return "json"

    def pieces(self, recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
        """The report, in one piece for each of the encoder's."""
        # Plain ASCII: a path may hold bytes that are no UTF-8, and a source line any character at all.
        yield from json.JSONEncoder(indent=2, allow_nan=False).iterencode(_report(recording, findings))
        yield "\n"


def _report(recording: Recording, findings: Sequence[Finding]) -> dict[str, object]:
    meta = recording.meta
    marks = fingerprints(findings, fact(recording, "directory"))
    return {
        "format": FORMAT,
        "version": VERSION,
        "generator": {"name": "anymps", "version": __version__},
        "verdict": verdict(recording, findings),
        "run": {name: meta[name] for name in _FACTS if name in meta},
        "complete": recording.complete,
        "calls": recording.entry_count,
        "calls_without_detail": recording.dropped,
        "real_kernels": real_object(recording),
        "numbers": numbers_object(recording),
        "complete_steps": recording.complete_steps,
        "findings": [finding_object(*pair) for pair in zip(findings, marks, strict=True)],
        "step_table": _step_table(recording.step_table()),
        "predicted_step": predicted_object(recording),
        "no_predicted_step": why_no_prediction(recording),
        "operators": [_operator(use) for use in recording.operators()],
        "lines": [_line(line) for line in recording.lines()],
        "waits": [_occurrence(wait) for wait in recording.waits()],
        "wait_queues": [_wait_queue(place, queue) for place in wait_places(recording) for queue in place.queues],
        "fallbacks": [_occurrence(fallback) for fallback in recording.fallbacks()],
        "refusals": [_refusal(refusal) for refusal in recording.refusals()],
        "memory": [_sample(sample) for sample in recording.memory()],
        "memory_peak": _memory_peak(recording),
        "limits": limits(recording),
    }


def _step_table(table: StepTable) -> dict[str, object]:
    return {
        "averaged": table.averaged,
        "mean": [share_object(share) for share in table.mean],
        "median": [share_object(share) for share in table.median],
        "first": [share_object(share) for share in table.first],
        "rare": asdict(table.rare) if table.rare is not None else None,
    }


def _operator(use: OperatorUse) -> dict[str, object]:
    return {
        "name": use.name,
        "fate": use.fate.label,
        "count": use.count,
        "duration_ns": use.duration_ns,
        "moved_bytes": use.moved_bytes,
    }


def _line(line: Line) -> dict[str, object]:
    return {
        "file": line.file or None,
        "line": line.line,
        "source": line.source,
        "on_mps": line.on_mps,
        "on_cpu": line.on_cpu,
        "waits": line.waits,
        "refused": line.refused,
        "backend_changes": line.backend_changes,
        "duration_ns": line.duration_ns,
        "fused": [{"file": file, "line": number} for file, number in line.fused],
    }


def _occurrence(occurrence: Occurrence) -> dict[str, object]:
    return {
        "operator": occurrence.operator,
        "fate": occurrence.fate.label,
        "wait": occurrence.wait.label,
        "direction": occurrence.direction.label,
        "blocking": occurrence.blocking,
        "site": site_object(occurrence.site),
        "phases": [phase.label for phase in occurrence.phases],
        "modules": list(occurrence.modules),
        "count": occurrence.count,
        "steps": occurrence.steps,
        "per_step": occurrence.per_step,
        "duration_ns": occurrence.duration_ns,
        "moved_bytes": occurrence.moved_bytes,
    }


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
        "queued_in": queue.queued_in.label if queue.queued_in is not None else None,
        "queued_by": site_object(queue.queued_by),
    }


def _refusal(refusal: Refusal) -> dict[str, object]:
    return {
        "kind": refusal.kind.value,
        "error": refusal.error,
        "message": refusal.message,
        "operator": refusal.operator,
        "site": site_object(refusal.site),
        "origin": site_object(refusal.origin),
        "detail": dict(refusal.detail),
    }


def _sample(sample: MemorySample) -> dict[str, object]:
    return {
        "time_ns": sample.time_ns,
        "allocated_bytes": sample.allocated_bytes,
        "driver_bytes": sample.driver_bytes,
    }


def _memory_peak(recording: Recording) -> dict[str, object] | None:
    story, limits = recording.memory_story, memory_limits(recording)
    peak = story.peak
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
        "most_heap_bytes": story.peak_reserved,
        "working_set_bytes": limits.working_set if limits is not None else None,
        "growth_per_step_bytes": growth_per_step(recording),
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
