"""MPS701 to MPS703: copies with `non_blocking=True` whose host side is touched before the host has waited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._catalogue import read_rules
from anymps.findings._loop import times
from anymps.findings._model import Finding, Rule, at
from anymps.record import Recording, UnsafeCopy

_RULES = read_rules(__file__, "copies.toml")
CHANGED = _RULES["MPS701"]
FREED = _RULES["MPS702"]
READ = _RULES["MPS703"]

_RULE_OF: Final = {"changed": CHANGED, "freed": FREED, "used": READ} | {
    rule.id: rule for rule in (CHANGED, FREED, READ)
}
"""By what became of the copy; older recordings name the rule."""


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about copies that were not waited for, one for each pair of lines."""
    groups: dict[tuple[object, ...], list[UnsafeCopy]] = {}
    for unsafe in recording.unsafe_copies():
        lines = (*unsafe.site.file_line, *unsafe.copy.file_line)
        groups.setdefault((unsafe.kind, *lines), []).append(unsafe)
    for group in groups.values():
        first, count = group[0], sum(unsafe.count for unsafe in group)
        rule = _RULE_OF.get(first.kind)
        if rule is None:
            continue  # of another anymps
        yield rule.finding(
            first.site,
            what=_what(rule, first, count),
            count=count,
            related_sites=[site for site in (first.copy, first.wait) if site != first.site],
        )


def _what(rule: Rule, unsafe: UnsafeCopy, count: int) -> str:
    copy = "this copy" if unsafe.copy == unsafe.site or not unsafe.copy.known else f"the copy at {at(unsafe.copy)}"
    wait = f"the next wait, at {at(unsafe.wait)}" if unsafe.wait.known else "any wait"
    if rule is FREED:
        return f"The source of {copy} was freed {times(count)} before {wait}."
    if rule is CHANGED:
        by = f"by `{unsafe.operator}`" if unsafe.operator else "outside of torch's operators,"
        return f"The source of {copy} was changed {times(count)} {by} before {wait}."
    return f"`{unsafe.operator}` used the result of {copy} {times(count)} before the host had waited for it."
