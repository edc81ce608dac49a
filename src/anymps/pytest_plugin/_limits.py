"""The limits of a test: waits, memory, operators on the CPU. Each gives a message, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anymps._paths import project_path
from anymps._text import plural, size
from anymps.capture import Allocation, Section
from anymps.pytest_plugin._facts import counted_waits, unmarked_fallbacks
from anymps.pytest_plugin._marks import Marks
from anymps.pytest_plugin._words import place, times
from anymps.record import Fate, Site

if TYPE_CHECKING:
    from anymps.metal import ShaderFault
    from anymps.numerics import Found

_SHOWN = 5


def exceeded_waits(section: Section, limit: int, root: str) -> str:
    """The text if the host waited more often than `limit` times."""
    waits = counted_waits(section)
    if waits.total() <= limit:
        return ""
    lines: Counter[tuple[str, Site]] = Counter()
    for (_, wait, site), count in waits.items():
        lines[wait.label, site] += count
    largest = sorted(lines.items(), key=lambda line: (-line[1], line[0][1].file, line[0][1].line))
    shown = (f"  {count:>6,} x {wait:<16} {place(site, root)}" for (wait, site), count in largest)
    return _text(f"The host waited {times(waits.total())} for the GPU, out of a limit of {limit:,}:", shown)


def exceeded_memory(added: int, limit: int, allocations: Sequence[Allocation], root: str) -> str:
    """The text if the test added more than `limit` bytes to the device's memory at one time."""
    if added <= limit:
        return ""
    head = f"The test took {size(added)} of the device's memory, out of a limit of {size(limit)}. The largest results:"
    shown = (
        f"  {size(result.size):>10}  {result.count:,} x {result.tensor} of {result.operator}"
        f"  {place(result.site, root)}"
        for result in allocations
    )
    return _text(head, shown)


def unexpected_fallbacks(section: Section, marks: Marks, root: str) -> str:
    """The text if operators ran on the CPU that no mark names."""
    found = unmarked_fallbacks(section, marks.fallbacks)
    if not found:
        return ""
    names = sorted({operator for operator, _, _ in found})
    shown = (
        f"  {operator}, {times(count)}{_always(fate)}  {place(site, root)}"
        for (operator, fate, site), count in found.items()
    )
    arguments = ", ".join(f'"{name}"' for name in names)
    return _text(f"{plural(len(names), 'operator')} ran on the CPU (--mps-fail-on-fallback):", shown) + (
        f"\nIf that is intended, mark the test: @pytest.mark.mps_fallback({arguments})"
    )


def shader_faults(faults: Iterable[ShaderFault]) -> str:
    """The text if Metal kernels did what a Mac answers with wrong numbers; what merely is not allowed is left out."""
    first = {(fault.kernel, fault.kind, fault.line): fault for fault in faults if fault.serious}
    if not first:
        return ""
    head = f"{plural(len(first), 'fault')} of Metal kernels (--mps-check-shaders):"
    return _text(head, (f"  {fault.what}" for fault in first.values()))


def wrong_numbers(found: Sequence[tuple[str, Sequence[Found]]], root: str) -> str:
    """The text if results of operators differ from the CPU's; by line, with the results that were wrong there."""
    if not found:
        return ""
    from anymps.numerics import told

    shown = (f"  {project_path(line, (root,))}: {told(several[0], len(several))}" for line, several in found)
    head = f"{plural(len(found), 'operator')} with results that differ from the CPU's (--mps-check-numbers):"
    return _text(head, shown)


def _always(fate: Fate) -> str:
    return ", regardless of PYTORCH_ENABLE_MPS_FALLBACK" if fate is Fate.ALWAYS_FALLBACK else ""


def _text(head: str, lines: Iterable[str]) -> str:
    shown = list(lines)
    left = len(shown) - _SHOWN
    more = [f"  and {plural(left, 'more line')}"] if left > 0 else []
    return "\n".join([head, *shown[:_SHOWN], *more])
