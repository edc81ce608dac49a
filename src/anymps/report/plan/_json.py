"""A plan as JSON: all that the other forms show, unrounded; its schema is docs/schema/plan-1.json."""

from __future__ import annotations

from typing import Any, Final

from anymps.cost import WalkedStep
from anymps.plan import LARGEST_BATCH, Fix, MacTime, Plan, Row, TriedChange
from anymps.record import Category, Moment, Site
from anymps.report._objects import as_json, record_object

_POINTS: Final = 200
"""Points of the curve at most."""


def plan_json(plan: Plan) -> str:
    """The plan as JSON: sizes in bytes, steps from 0 on, `margin` negative where the working set does not suffice."""
    story = plan.base.story
    names = [category.value for category in Category]
    document = {
        "script": plan.script,
        "torch": plan.torch,
        **({"times_of": plan.times_of} if plan.times_of else {}),
        "asked_about": plan.asked[0].name if len(plan.asked) == 1 else None,
        "asked": [mac.name for mac in plan.asked],
        "steps": plan.base.steps,
        "ended_after": plan.base.limit,
        **({"loop": _place(plan.base.loop)} if plan.base.loop is not None else {}),
        "batch": plan.base.batch,
        "sequence": plan.base.sequence,
        "peak": _peak(plan.base.peak, story.peak_reserved),
        "step_memory": [
            {"step": step.step, "peak_allocated": step.peak, "left_allocated": step.after} for step in story.steps()
        ],
        "curve": [
            {
                "step": sample.step,
                "allocated": sum(sample.by_category),
                "reserved": sample.reserved,
                "categories": dict(zip(names, sample.by_category, strict=True)),
            }
            for sample in story.samples(_POINTS)
        ],
        "against": plan.own.mac.name if plan.own is not None else None,
        "which_mac": [_choice(choice) for choice in plan.choices],
        "macs": [_mac(row) for row in plan.rows],
        "largest_batch_unknown": {"why": plan.no_larger.value, "problem": plan.problem} if plan.no_larger else None,
        "times": [_time(mac_time) for mac_time in plan.times],
        "what_if": [_change(change) for change in plan.changes],
        "first_fixes": [_fix(fix) for fix in plan.fixes],
        "dropped": record_object(plan.base.dropped),
        "assumptions": [record_object(one) for one in plan.base.assumptions],
    }
    return as_json("plan", document)


def _peak(peak: Moment, reserved: int) -> dict[str, Any]:
    return {
        "allocated": peak.allocated,
        "reserved": reserved,
        "rounding": peak.rounding,
        "step": peak.step,
        "phase": peak.phase.label,
        **_place(peak.site),
        "categories": {category.value: size for category, size in peak.by_category.items()},
        "activations": [{"module": one.module, "bytes": one.bytes, "tensors": one.count} for one in peak.by_module()],
        "lines": [
            {
                **_place(one.site),
                "category": one.category.value,
                "operator": one.operator,
                "bytes": one.bytes,
                "tensors": one.count,
            }
            for one in peak.by_site()
        ],
    }


def _place(site: Site) -> dict[str, Any]:
    return {"file": site.file, "line": site.line}


def _seconds(time: WalkedStep | None) -> dict[str, float | None]:
    return {
        "seconds": time.seconds if time else None,
        "seconds_low": time.low if time else None,
        "seconds_high": time.high if time else None,
    }


def _choice(choice: MacTime) -> dict[str, Any]:
    time = choice.time
    return {
        "mac": choice.mac.name,
        "gpu_cores": choice.mac.gpu_cores,
        "verdict": choice.verdict.value,
        "largest_batch": choice.largest_batch,
        "larger_unknown": choice.largest_batch == LARGEST_BATCH,
        **_seconds(time),
        "samples_per_second": choice.samples,
        "bound": time.bound if time else None,
        "speed": choice.speed.value if choice.speed else None,
        "speed_low": choice.speed.low if choice.speed else None,
        "speed_high": choice.speed.high if choice.speed else None,
    }


def _mac(row: Row) -> dict[str, Any]:
    outcome, within = row.outcome, row.recovery
    failing = outcome.failing
    return {
        "mac": outcome.mac.name,
        "working_set": outcome.mac.recommended_max_memory,
        "verdict": outcome.verdict.value,
        "peak_allocated": outcome.peak_allocated,
        "peak_reserved": outcome.peak_reserved,
        "margin": outcome.margin,
        "others": outcome.others,
        "with_others": outcome.with_others.value,
        "message": outcome.message,
        "fails_in": {"step": failing.step, "phase": failing.phase.label, **_place(failing.site)} if failing else None,
        "largest_batch": row.largest_batch,
        "larger_unknown": row.largest_batch == LARGEST_BATCH,
        "recovery": {"steps": within.steps, "batch": within.last_batch} if within is not None else None,
    }


def _time(mac_time: MacTime) -> dict[str, Any]:
    time = mac_time.time
    return {
        "mac": mac_time.mac.name,
        "chip": mac_time.mac.chip,
        "gpu_cores": mac_time.mac.gpu_cores,
        "verdict": mac_time.verdict.value,
        **_seconds(time),
        "device_seconds": time.device if time else None,
        "host_seconds": time.host if time else None,
        "wait_seconds": time.all_waits if time else None,
        "bound": time.bound if time else None,
        "shares": [{"what": what, "seconds": seconds} for what, seconds in time.shares] if time else [],
        "samples_per_second": mac_time.samples,
        "tokens_per_second": mac_time.tokens,
        "left_out": [{"reason": reason, "calls": calls} for reason, calls in time.left_out] if time else [],
    }


def _change(change: TriedChange) -> dict[str, Any]:
    return {
        "change": change.scenario.label,
        "peak_allocated": change.peak_allocated,
        "peak_reserved": change.peak_reserved,
        "verdict": change.outcomes[0].verdict.value if change.outcomes else None,
        "mac": change.outcomes[0].mac.name if change.outcomes else None,
        "macs": [{"mac": one.mac.name, "verdict": one.verdict.value} for one in change.outcomes],
        "times": [_time(one) for one in change.times],
        "problem": change.problem,
        **({"adapters": change.adapters} if change.adapters else {}),
    }


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "fix": fix.kind.value,
        "begin": fix.begin,
        "applies": fix.applies,
        "share": fix.share,
        "peak_reserved": fix.peak,
        "growth": fix.growth,
        "lines": [_place(site) for site in fix.sites],
    }
