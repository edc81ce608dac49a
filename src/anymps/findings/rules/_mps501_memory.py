"""MPS501 to MPS504: limits of memory that a run exceeded or came close to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from anymps._text import percent
from anymps.findings._memory_limits import by_category, category_words, line_words, memory_limits
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._refusals import Refused, refused_as
from anymps.findings.advice import LESS_MEMORY, keep_numbers
from anymps.record import Category, Moment, Phase, Recording, RefusalKind, Site
from anymps.rules.texts import format_size
from anymps.rules.variables import HIGH_WATERMARK, WATERMARKS

NEAR: Final = 0.9
"""The share of the allocator's limit above which a run is near it: our own measure."""

_LINES = 3

_ALLOWED: Final = re.compile(r"max allowed: ([\d.]+) ([KMG])i?B")
_LOWERED: Final = (
    "The script or a variable has lowered the limit: look for `torch.mps.set_per_process_memory_fraction` and "
    f"{HIGH_WATERMARK}."
)
_MARGIN: Final = 0.99


def _holding(tensors: int) -> Example:
    """A program that keeps so many tensors of 1 GiB, and one that keeps the last of them."""
    return Example(
        bad=f"""
            kept = []
            for _ in range({tensors}):
                kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=device))  # 1 GiB
                kept[-1][0] = 1
        """,
        better={"kept = []\n": "", "kept.append(": "kept = ", "device))  # 1 GiB": "device)", "[-1]": ""},
        mac="M1 8GB",
    )


OUT_OF_MEMORY = Rule(
    id="MPS501",
    title="Out of memory",
    refusal=True,
    related_as="also held at",
    why="The allocator refuses memory beyond a multiple of the Mac's working set (1.7 by default).",
    fix=LESS_MEMORY,
    source="aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15",
    example=_holding(10),
)

PAGES = Rule(
    id="MPS502",
    title="More memory than the Mac's working set",
    severity=Severity.WARNING,
    related_as="also held at",
    why="Above Metal's recommended working set, macOS moves memory to disk, and steps take 10 to 20 times as long.",
    fix=LESS_MEMORY,
    source="Metal, MTLDevice.recommendedMaxWorkingSetSize; aten/src/ATen/mps/MPSAllocator.mm (torch 2.13)",
    example=_holding(6),
)

NEAR_LIMIT = Rule(
    id="MPS503",
    title="Memory close to the allocator's limit",
    severity=Severity.WARNING,
    related_as="also held at",
    why="A longer sequence, a larger batch or another program can then end the run with an out-of-memory error.",
    fix=LESS_MEMORY,
    source="aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15",
    example=_holding(9),
)

BUFFER = Rule(
    id="MPS504",
    title="Tensor too large for one Metal buffer",
    refusal=True,
    why="A tensor is one Metal buffer, and Metal limits the size of a buffer however much memory is free.",
    fix="Split the batch or the large dimension into pieces, or use a smaller dtype.",
    source="Metal, MTLDevice.maxBufferLength; aten/src/ATen/mps/MPSAllocator.mm, torch 2.7 to 2.15",
    example=Example(
        bad="x = torch.empty(64, 1024, 1024, 128, device=device)  # 32 GiB",
        better={"x = torch.empty(64,": "for _ in range(64):\n    x = torch.empty(1,", "  # 32 GiB": ""},
    ),
)

_FIRST_FIX: Final[Mapping[Category, str]] = {
    Category.PARAMETERS: "The parameters take the most memory: load the model in a lower precision "
    "(`dtype=torch.bfloat16`), or a smaller one.",
    Category.GRADIENTS: "Gradients take the most memory: train fewer parameters (`requires_grad_(False)`, or "
    "adapters), or call `zero_grad(set_to_none=True)` before the forward.",
    Category.OPTIMIZER: "The optimizer's state takes the most memory: use an optimizer with less of it (SGD, "
    "Adafactor), or train fewer parameters.",
    Category.BATCHES: "Batches take the most memory: move one batch at a time to the device, and make it smaller.",
    Category.ACTIVATIONS: "Activations take the most memory: halve the batch and accumulate gradients over two, or use "
    "`torch.utils.checkpoint`.",
    Category.HELD: "Tensors that your code holds take the most memory: find what keeps them at the lines that hold "
    "most, and `del`, `.detach()` or `.cpu()` them.",
    Category.TEMPORARIES: "Temporary results take the most memory: split the work at the lines that hold most, or "
    "halve the batch.",
}

_KEPT: Final = (
    "Results that the same lines make again and again stay alive, and take the most memory: a list or a running sum "
    f"keeps them, and with them all that their backward would need. {keep_numbers()} Use `torch.no_grad()` where "
    "nothing is trained."
)
_AGAIN: Final = 4
"""Alike results alive at once from which they count as made again and again."""


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about the limits of memory."""
    refused = refused_as(recording, RefusalKind.MEMORY)
    for one in refused:
        yield _refused(recording, one)
    if not any(one for one in refused if not _too_large(one)):
        yield from _near(recording)


def _refused(recording: Recording, refused: Refused) -> Finding:
    what = f"`{refused.operator}`{refused.called} raised {refused.error}: {refused.message}"
    if _too_large(refused):
        limits = memory_limits(recording)
        if limits is not None:
            what += f"; one buffer on {limits.mac.name} must stay below {format_size(limits.largest_buffer)}."
        return refused.finding(BUFFER, what=what, related_sites=())
    moment = _moment(recording, refused)
    lowered = _own_limit(recording, refused.message)
    if moment is None:
        fix = f"{lowered} {OUT_OF_MEMORY.fix}".lstrip()
        return refused.finding(OUT_OF_MEMORY, what=what, fix=fix, related_sites=())
    lines = moment.by_site()[:_LINES]
    what += f" Held then: {format_size(moment.allocated)} ({category_words(moment)}); most of it: {line_words(lines)}."
    fix = f"{lowered} {_fix(recording, moment, refused.site)}".strip()
    others = _largest_other_lines(moment, refused.site)
    return refused.finding(OUT_OF_MEMORY, what=what, fix=fix, related_sites=others)


def _own_limit(recording: Recording, message: str) -> str:
    """What to say first where the script or a variable has set a lower limit than the Mac's."""
    limits, told = memory_limits(recording), _ALLOWED.search(message)
    if limits is None or told is None:
        return ""
    allowed = float(told[1]) * 1024.0 ** " KMG".index(told[2])
    return _LOWERED if allowed < _MARGIN * WATERMARKS[HIGH_WATERMARK] * limits.working_set else ""


def _too_large(refused: Refused) -> bool:
    return refused.message.startswith("Invalid buffer size")


def _moment(recording: Recording, refused: Refused) -> Moment | None:
    """What the memory held when it was refused; None if the recording does not know."""
    event = refused.detail.get("event")
    if not isinstance(event, int):
        return None
    moment = recording.memory_story.at(event)
    return moment if moment.alive else None


def _near(recording: Recording) -> Iterator[Finding]:
    """The nearer limit only: who is near the allocator's has long passed the working set."""
    story, limits = recording.memory_story, memory_limits(recording)
    if story.peak is None or limits is None:
        return
    peak = story.peak
    lines = peak.by_site()[:_LINES]
    held = f"{category_words(peak)}; most of it: {line_words(lines)}"
    if limits.high_watermark is not None and peak.allocated > NEAR * limits.high_watermark:
        rule, limit, which = NEAR_LIMIT, limits.high_watermark, "at which the allocator stops"
    elif peak.allocated > limits.working_set:
        rule, limit, which = PAGES, limits.working_set, "that Metal recommends"
    else:
        return
    what = (
        f"At its peak the run held {format_size(peak.allocated)}, {percent(peak.allocated / limit)} of the "
        f"{format_size(limit)} {which} on {limits.mac.name}: {held}."
    )
    site = peak.site if peak.site.known else lines[0].site if lines else peak.site
    yield rule.finding(
        site, what=what, count=1, fix=_fix(recording, peak, site), related_sites=_largest_other_lines(peak, site)
    )


def _fix(recording: Recording, moment: Moment, site: Site) -> str:
    """The first fix by what holds most.

    Another one where that is what the line itself has moved to the device, or results that a loop keeps: freed as the
    error ends the program, they look like temporary ones, and without a backward nothing needs them as activations.
    """
    rows = by_category(moment)
    if not rows:
        return ""
    category, held = rows[0][0], rows[0][1]
    moved = sum(one.bytes for one in moment.alive if one.phase is Phase.MOVE and one.site.file_line == site.file_line)
    if category is Category.HELD and 2 * moved > held:
        return "The data that this line moves to the device takes the most memory: move less, or use a smaller dtype."
    if category in (Category.TEMPORARIES, Category.ACTIVATIONS) and _keeps_results(recording, moment):
        return _KEPT
    return _FIRST_FIX.get(category, "")


def _keeps_results(recording: Recording, moment: Moment) -> bool:
    """Whether most of a moment are results of which many are alike, in a run that has had no backward."""
    if any(one.phase is Phase.BACKWARD for one in recording.memory_story.allocations):
        return False
    alike = Counter((one.site, one.operator, one.module, one.bytes) for one in moment.alive)
    again = sum(count * size for (*_, size), count in alike.items() if count >= _AGAIN)
    return 2 * again > moment.allocated


def _largest_other_lines(moment: Moment, site: Site) -> list[Site]:
    """The lines that hold most, each once, without the finding's own."""
    places = {line.site.file_line: line.site for line in moment.by_site()[:_LINES]}
    places.pop(site.file_line, None)
    return list(places.values())
