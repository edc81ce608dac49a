"""What a recording tells, in tables that two recordings of the same program can be compared by."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from anymps.findings import find
from anymps.record import Direction, Fate, Phase, Recording, RefusalKind, Site, Wait

_CALLS = """
    SELECT e.step, o.name, s.fate, e.phase, e.wait, e.direction, e.site, m.path, COUNT(*), SUM(e.moved_bytes)
    FROM entries e JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator
    JOIN modules m ON m.id = e.module GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
"""
_OF_ONE = ("anymps::device_time ",)
"""Marks of the observer alone: what a program measures of the device, as on the virtual one no device runs."""

Key = tuple[Any, ...]


def line(site: Site) -> str:
    """`train.py:7`, or nothing for an unknown line."""
    return f"{Path(site.file).name}:{site.line}" if site.known else ""


def findings_of(recording: Recording) -> list[Key]:
    """Rule, line and count of each finding."""
    return sorted((found.id, line(found.site), found.count) for found in find(recording))


def calls_of(recording: Recording) -> Counter[Key]:
    """Calls by step, operator, fate, phase, wait, direction, line and module."""
    counted: Counter[Key] = Counter()
    for step, name, fate, phase, wait, direction, site, module, count, _ in recording._file._connection.execute(_CALLS):
        if not name.startswith(_OF_ONE):
            words = Fate(fate).label, Phase(phase).label, Wait(wait).label, Direction(direction).label
            counted[(step, name, *words, line(recording.site(site)), module)] += count
    return counted


def waits_of(recording: Recording) -> list[Key]:
    """Every place that waits: how often, in how many steps, in which phases, bytes, and the queue before it."""
    occurrences = [
        (wait.wait.label, wait.operator, line(wait.site), wait.count, wait.steps, wait.per_step, wait.phases,
         wait.modules, wait.moved_bytes, wait.blocking)
        for wait in recording.waits()
    ]  # fmt: skip
    queues = [
        (queue.wait.label, "queue", line(queue.site), queue.count, queue.steps, queue.first_step, queue.last_step,
         queue.measured, queue.operators, queue.most_operators)
        for queue in recording.queues()
    ]  # fmt: skip
    return sorted(map(repr, occurrences)) + sorted(map(repr, queues))  # type: ignore[return-value]


def fates_of(recording: Recording) -> list[Key]:
    """Fallbacks and refusals, with lines; of a refused argument no origin, as not each source has a culprit for it."""
    fallbacks = [
        (fallback.operator, fallback.fate.label, line(fallback.site), fallback.count)
        for fallback in recording.fallbacks()
    ]
    refusals = [
        (
            refusal.operator,
            refusal.kind.value,
            refusal.error,
            refusal.message,
            line(refusal.site),
            "" if refusal.kind is RefusalKind.ARGUMENT else line(refusal.origin),
        )
        for refusal in recording.refusals()
    ]
    return sorted(fallbacks) + sorted(refusals)


def steps_of(recording: Recording) -> list[Key]:
    """Waits and fallbacks of each complete step."""
    return [(step.step, step.waits, step.on_cpu) for step in recording.step_sums()]


def memory_of(recording: Recording) -> Counter[Key]:
    """Bytes of all buffers made, by line and module: whether a script's last values are held at its end is chance."""
    sums: Counter[Key] = Counter()
    for one in recording.memory_story.allocations:
        if one.born:
            sums[line(one.site), one.module] += one.requested
    return sums


def tables_of(recording: Recording) -> dict[str, list[str]]:
    """All of them, as texts."""
    return {
        "findings": list(map(repr, findings_of(recording))),
        "calls": sorted(map(repr, calls_of(recording).items())),
        "waits": list(map(repr, waits_of(recording))),
        "fates": list(map(repr, fates_of(recording))),
        "steps": list(map(repr, steps_of(recording))),
        "memory": sorted(map(repr, memory_of(recording).items())),
    }
