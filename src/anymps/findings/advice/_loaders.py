"""Calls that make a DataLoader, with other settings."""

from __future__ import annotations

import ast

from anymps.source import CallEdit, Place, Rewritten, Splice, argument, build, last_name, unpacks

_ORDER = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory")


def pinned_without_mps(place: Place) -> Rewritten | None:
    """`pin_memory=True` where there is no mps: everywhere else it is as it was."""
    torch = place.names.torch
    for call in place.code.calls:
        given = argument(call, "pin_memory", _ORDER if last_name(call).endswith("DataLoader") else ())
        if torch and isinstance(given, ast.Constant) and given.value is True:
            pinned = f"not {torch}.backends.mps.is_available()"
            return Rewritten((Splice(*place.code.span(given), pinned),), shown=place.code.span(call))
    return None


def persistent_workers(place: Place) -> Rewritten | None:
    """Workers that stay from one epoch to the next. Without workers a DataLoader refuses that they stay."""
    for call in place.code.calls:
        if not last_name(call).endswith("DataLoader") or unpacks(call):
            continue
        workers = argument(call, "num_workers", _ORDER)
        optional = isinstance(workers, (ast.Name, ast.Attribute, ast.Subscript))
        value = f"{ast.unparse(workers)} > 0" if workers is not None and optional else "True"
        built = build(CallEdit((last_name(call),), set=(("persistent_workers", value),)), place)
        if built is not None:
            end = built.start + len(built.old)
            return Rewritten((Splice(built.start, end, built.new),), shown=(built.start, end))
    return None
