"""MPS701 to MPS703: copies with `non_blocking=True` whose host side is touched before the host has waited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._loop import times
from anymps.findings._model import Example, Finding, Rule, at
from anymps.record import Recording, UnsafeCopy

_WAITS: Final = "`torch.mps.synchronize()`, `.item()` or a blocking copy"

CHANGED = Rule(
    id="MPS701",
    title="Source of a non_blocking copy changed before a wait",
    wrong=True,
    related_as="copy or wait at",
    why=(
        "The copy returns at once, and the GPU reads the CPU tensor's own memory later: it may get the new values, "
        "the old ones, or some of each, without an error. Here it gets the old ones."
    ),
    fix=f"Wait before you change the tensor ({_WAITS}), change another tensor, or drop `non_blocking=True`.",
    source="aten/src/ATen/native/mps/operations/Copy.mm (torch 2.13); pytorch issues #139550, #189690",
    example=Example(
        bad="""
            x = torch.rand(8, 4)
            y = x.to(device, non_blocking=True)
            x.zero_()
            torch.mps.synchronize()
        """,
        better={"x.zero_()\ntorch.mps.synchronize()": "torch.mps.synchronize()\nx.zero_()"},
    ),
)

FREED = Rule(
    id="MPS702",
    title="Source of a non_blocking copy freed before a wait",
    wrong=True,
    related_as="copy or wait at",
    why=(
        "The copy returns at once, and up to torch 2.12 nothing keeps the CPU tensor's memory until the GPU has read "
        "it: the copy gets whatever is there by then. From torch 2.13 on the copy holds its source."
    ),
    fix=f"Keep the tensor until the host has waited ({_WAITS}), or drop `non_blocking=True`.",
    source="aten/src/ATen/native/mps/operations/Copy.mm (torch 2.12, 2.13); pytorch issue #139550, pull #181017",
    until=(2, 12),
    example=Example(
        bad="""
            y = torch.rand(8, 4).to(device, non_blocking=True)
            torch.mps.synchronize()
        """,
        better={"y = torch.rand(8, 4)": "x = torch.rand(8, 4)\ny = x"},
    ),
)

READ = Rule(
    id="MPS703",
    title="Result of a non_blocking copy used on the CPU before a wait",
    wrong=True,
    related_as="copy or wait at",
    why=(
        "The copy returns at once, and the values arrive later: until the host has waited the CPU tensor holds "
        "whatever its memory held before, without an error. `--strict-copies` shows such values in a run here too."
    ),
    fix=f"Wait between the copy and the use ({_WAITS}), or drop `non_blocking=True`.",
    source="aten/src/ATen/native/mps/operations/Copy.mm (torch 2.13); pytorch issue #193845",
    example=Example(
        bad="""
            y = torch.rand(8, 4, device=device)
            x = y.to("cpu", non_blocking=True)
            total = x.sum()
            torch.mps.synchronize()
        """,
        better={"total = x.sum()\ntorch.mps.synchronize()": "torch.mps.synchronize()\ntotal = x.sum()"},
    ),
)
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
