"""A comparison of two runs as JSON, by the schema in `docs/schema/compare-1.json`."""

from __future__ import annotations

import math
from typing import Any

from anymps.compare import Comparison, Divergence, Side, Sketch, TracedCall
from anymps.record import Site
from anymps.report._objects import as_json, record_object
from anymps.report.comparison import _words as words


def comparison_json(found: Comparison) -> str:
    """The comparison. Numbers that are not finite are strings."""
    rounding = found.rounding
    began = rounding.first
    content = {
        "script": found.script,
        "agrees": found.agrees,
        "used": found.is_used,
        "verdict": words.verdict(found),
        "runs": [_side(side) for side in found.sides],
        "divergences": [_divergence(found, divergence) for divergence in found.divergences],
        "rounding": {
            "results": rounding.compared,
            "same_bits": rounding.same,
            "share_of_bound": _number(rounding.share),
            "first": None if began is None else _call(began.right[-1]),
        },
        "calls_compared": found.compared,
        "calls_by_kernels": record_object(found.by_kernels),
        "losses": {
            "line": _site(found.loss_site),
            "difference": _number(found.largest_difference),
            "values": [[pair.step, _number(pair.left), _number(pair.right)] for pair in found.losses],
        },
    }
    return as_json("compare", content)


def _side(side: Side) -> dict[str, Any]:
    ending = side.ending
    return {
        "name": side.name,
        "torch": side.facts.get("torch", ""),
        "mac": side.facts.get("mac") or None,
        "kernels": side.facts.get("kernels") or None,
        "kernels_torch": side.kernels_torch or None,
        "kernel_calls": side.kernel_calls,
        "substrate": side.facts.get("substrate") or None,
        "calls": side.calls,
        "steps": ending.steps,
        "traced_steps": list(side.traced_steps),
        "left_out": ending.left_out,
        "cut": ending.is_cut,
        "error": ending.error or None,
        "error_line": _site(ending.site) if ending.error else None,
    }


def _divergence(found: Comparison, divergence: Divergence) -> dict[str, Any]:
    has = divergence.one is not None
    return {
        "cause": divergence.cause.value,
        "why": words.why(found, divergence),
        "advice": words.advice(found, divergence) or None,
        "call": _call(divergence.call),
        "operators": [[call.operator for call in calls] for calls in (divergence.left, divergence.right)],
        "times": divergence.times,
        "difference": _number(divergence.difference) if has else None,
        "relative": _number(divergence.relative) if has else None,
        "allowed": _number(divergence.allowed) if has else None,
        "results": [None if sketch is None else _sketch(sketch) for sketch in (divergence.one, divergence.other)],
    }


def _call(call: TracedCall) -> dict[str, Any]:
    return {
        "operator": call.operator,
        "number": call.number,
        "step": call.step,
        "backward": call.in_backward,
        "autocast": call.autocast or None,
        "line": _site(call.site),
    }


def _site(site: Site) -> dict[str, Any] | None:
    if not site.line:
        return None
    return {"file": site.file, "line": site.line, "function": site.function, "text": site.source}


def _sketch(sketch: Sketch) -> dict[str, Any]:
    return {
        "dtype": sketch.dtype,
        "shape": list(sketch.shape),
        "nan": sketch.nans,
        "infinite": sketch.infinities,
        "low": sketch.low,
        "high": sketch.high,
        "mean": sketch.total / sketch.count if sketch.count else 0.0,
        "elements": [_number(value) for value in sketch.elements],
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
