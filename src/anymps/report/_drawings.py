"""The drawings of the page, as numbers for its template: horizontal places in per cent, heights in pixels.

Own SVG and no charting library: a step is bars on tracks, which the libraries for curves do not draw; made here, it
prints, works without a script, follows the page's colours and can be read out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from anymps.findings import hurting_in
from anymps.record import Category, MemoryStory, Recording, Sample, Span, StepQueues, StepSum, StepTimeline
from anymps.report import _text as text
from anymps.report._words import fact

_TICKS: Final = 5  # parts of the axis at most
_TICKS_APART: Final = 0.16  # of the width: a label on a phone
_POINTS: Final = 400  # of the curve of memory
_MOST_ROWS: Final = 200  # of the table beside the timeline
_MOST_BARS: Final = 200
_MOST_RAMPS: Final = 500
_WIDEST_BAR: Final = 3.0  # per cent
_TALLEST: Final = 4  # times the ordinary bar
_BAR_TOP, _BAR_BOTTOM = 24, 112
_NARROWEST: Final = 0.05  # per cent: about half a pixel


def timeline_drawing(recording: Recording) -> dict[str, Any] | None:
    """The typical step on its tracks; None if there is no complete step."""
    step = recording.typical_step()
    if step is None or step.end_ns is None or step.end_ns <= step.start_ns:
        return None
    line = recording.timeline(step)
    start, length = step.start_ns, step.end_ns - step.start_ns
    directory = fact(recording, "directory")
    virtual = recording.meta.get("virtual") is not False

    def bars(spans: Sequence[Span], name: Callable[[Span], str]) -> list[dict[str, Any]]:
        return [
            {
                **_bar(span.start_ns - start, span.end_ns - span.start_ns, length),
                "name": name(span),
                "label": _label(name(span), 100 * (span.end_ns - span.start_ns) / length),
                "phase": int(span.phase),
                "title": _span_title(span, name(span), directory),
            }
            for span in spans
        ]

    waits = sum(span.count for span in line.waits)
    on_cpu = sum(span.count for span in line.on_cpu)
    hurting = hurting_in(recording, step)
    sentence = f"Step {step.step}, {text.duration(length)} long: a typical step. {text.plural(waits, 'wait')}"
    if hurting:
        hurt = "hurts" if hurting == 1 else "hurt"
        sentence += f" that {hurt}" if hurting == waits else f" ({hurting:,} that {hurt})"
    sentence += f", {text.plural(on_cpu, 'operator call')} on the CPU." if on_cpu else "."
    caption = (
        "Times are this machine's: the device works inside each call. On a Mac its work is queued, and each wait lasts "
        "until the queue is empty."
        if virtual
        else "Times of the host."
    )
    table = list(_rows(line, start, directory))
    queues = recording.step_queues(step)
    return {
        "sentence": sentence,
        "label": f"Tracks over time. {sentence} The table below holds the same.",
        "caption": f"{caption} Calls closer than a thousandth of the step are drawn as one.",
        "ticks": _ticks(length),
        "phases": bars(line.phases, lambda span: span.phase.label),
        "on_mps": bars(line.on_mps, lambda span: "MPS kernels"),
        "on_cpu": bars(line.on_cpu, lambda span: span.operator),
        "waits": bars(line.waits, lambda span: span.wait.label),
        "queue": _queue(queues, directory),
        "longest_queue": f"{max((it.operators for it in queues.waits), default=0):,}",
        "table": table[:_MOST_ROWS],
        "left_out": max(len(table) - _MOST_ROWS, 0),
    }


def _queue(queues: StepQueues, directory: str) -> list[dict[str, str]]:
    """A ramp for each wait, from the wait before it, as high as its queue; the longest where there are very many."""
    start, length = queues.step.start_ns, (queues.step.end_ns or 0) - queues.step.start_ns
    longest = sorted((it for it in queues.waits if it.operators), key=lambda it: -it.operators)[:_MOST_RAMPS]
    ramps = []
    for wait in sorted(longest, key=lambda it: it.start_ns):
        since, until = (round_(min(1000 * (it - start) / length, 1000)) for it in (wait.queued_ns, wait.start_ns))
        top = round_(24 - 23 * wait.operators / longest[0].operators)
        title = (
            f"{text.plural(wait.operators, 'operator')} queued since the wait before: "
            f"{text.duration(wait.host_ns) or '0'} of the host, {text.duration(wait.work_ns) or '0'} of work, then "
            f"{wait.wait.label} at {text.place(wait.site, directory)}"
        )
        ramps.append({"path": f"M{since} 24L{until} {top}V24Z", "title": title})
    return ramps


def runs_drawing(recording: Recording) -> dict[str, Any] | None:
    """The length of every step of the run; None if there are fewer than two."""
    sums = recording.step_sums()
    if len(sums) < 2:
        return None
    size = -(-len(sums) // _MOST_BARS)
    groups = [sums[place : place + size] for place in range(0, len(sums), size)]
    later = [it.duration_ns for it in sums[1:]]
    # The first step compiles and allocates, and any may wait for a busy machine: drawn to scale, one such flattens all.
    tops = [max(it.duration_ns for it in group) for group in groups]
    longest = min(max(later), int(_TALLEST * statistics.median(tops))) or 1
    width = 100 / len(groups)
    bars = []
    for place, (group, top) in enumerate(zip(groups, tops, strict=True)):
        height = max((_BAR_BOTTOM - _BAR_TOP) * min(top / longest, 1), 1)
        bars.append(
            {
                "at": round_(place * width + 0.1 * width),
                "width": round_(min(0.8 * width, _WIDEST_BAR)),
                "cut": top > longest,
                "top": round_(_BAR_BOTTOM - height),
                "height": round_(height),
                "title": _group_title(group),
            }
        )
    each = f" Each bar is the longest of {size} steps." if size > 1 else ""
    waits = sorted({it.waits for it in sums})
    spread = text.plural(waits[0], "wait") if len(waits) == 1 else f"{waits[0]} to {waits[-1]} waits"
    sentence = f"{text.plural(len(sums), 'step')}, {spread} in each.{_cut_off(sums, longest)}{each}"
    return {
        "sentence": sentence,
        "label": f"Length of every step. {sentence} The longest after the first took {text.duration(max(later))}.",
        "highest": text.duration(longest),
        "bars": bars,
        "first": f"{sums[0].step:,}",
        "last": f"{sums[-1].step:,}",
    }


def _cut_off(sums: Sequence[StepSum], longest: int) -> str:
    """Which steps are longer than the tallest bar; a sentence, or nothing."""
    beyond = [it for it in sums if it.duration_ns > longest]
    if not beyond:
        return ""
    most = text.duration(max(it.duration_ns for it in beyond))
    first = beyond[0] is sums[0]
    if len(beyond) == 1:
        which = "The first" if first else f"Step {beyond[0].step:,}"
        return f" {which} took {most} and is cut off."
    which = f"{len(beyond)} steps{', the first among them,' if first else ''}"
    return f" {which} took longer than {text.duration(longest)}, up to {most}, and are cut off."


def memory_drawing(story: MemoryStory, first_step: int = 0) -> dict[str, Any] | None:
    """Memory over the steps, stacked by what it is used for, with the peak; None if there is too little of it.

    From left to right are allocations in their order: by time, the start of a run would take most of the room, and a
    plan knows no times. The page calls the first step `first_step`.
    """
    samples = story.samples(_POINTS)
    if len(samples) < 2:
        return None
    sums = [sum(sample.by_category) for sample in samples]
    peak = max(sums)
    across = [place / (len(samples) - 1) for place in range(len(samples))]
    highest = max(peak, *(sample.reserved for sample in samples)) or 1
    bands, driver = _stacked(samples, across, highest)
    at = sums.index(peak)
    step = samples[at].step + first_step
    held = ", ".join(f"{band['name']} {band['most']}" for band in bands) or "nothing"
    return {
        "label": f"Memory over the steps. At most {text.size(peak) or 'nothing'}, in step {step}. "
        f"At most by use: {held}. The tables below hold the same for the peak.",
        "highest": text.size(highest),
        "ticks": _step_ticks(samples, across, first_step),
        "bands": bands,
        "driver": driver,
        "peak": {
            "at": round_(100 * across[at]),
            "top": round_(20 + 140 - 138 * peak / highest),
            "name": f"peak {text.size(peak)}, step {step}",
            "anchor": "end" if across[at] > 0.5 else "start",
            "shift": -8 if across[at] > 0.5 else 8,
        },
    }


def _step_ticks(samples: Sequence[Sample], across: Sequence[float], first_step: int) -> list[dict[str, Any]]:
    first: dict[int, float] = {}
    for sample, at in zip(samples, across, strict=True):
        first.setdefault(sample.step, at)
    every = -(-len(first) // _TICKS)
    ticks: list[dict[str, Any]] = []
    last = -1.0
    for step, at in list(first.items())[::every]:
        if at - last >= _TICKS_APART:
            ticks.append({"at": round_(100 * at), "label": f"step {step + first_step}"})
            last = at
    return ticks


def _stacked(samples: Sequence[Sample], across: Sequence[float], highest: int) -> tuple[list[dict[str, Any]], str]:
    """Memory by what it is used for as bands of a drawing 1000 wide and 140 high, and the heaps' line above them.

    `across` are the places of the samples, from 0 to 1; `highest` is the number of bytes at the top.
    """

    def points(values: Iterable[int]) -> list[str]:
        return [f"{round_(1000 * x)} {round_(140 - 138 * y / highest)}" for x, y in zip(across, values, strict=True)]

    bands = []
    below = [0] * len(samples)
    for place, category in enumerate(Category):
        if not any(it.by_category[place] for it in samples):
            continue
        above = [base + it.by_category[place] for base, it in zip(below, samples, strict=True)]
        outline = [*points(above), *reversed(points(below))]
        most = text.size(max(it.by_category[place] for it in samples))
        bands.append({"name": category.value, "place": place, "most": most, "path": f"M{'L'.join(outline)}Z"})
        below = above
    return bands, f"M{'L'.join(points(it.reserved for it in samples))}"


def _rows(line: StepTimeline, start: int, directory: str) -> Iterator[dict[str, str]]:
    """Phases, fallbacks and waits in the order of time."""
    rows = [
        *((span, "host", span.phase.label, "") for span in line.phases),
        *((span, "CPU", text.clean(span.operator), text.place(span.site, directory)) for span in line.on_cpu),
        *((span, "wait", span.wait.label, text.place(span.site, directory)) for span in line.waits),
    ]
    for span, track, what, where in sorted(rows, key=lambda row: row[0].start_ns):
        yield {
            "start": text.duration(span.start_ns - start) or "0",
            "length": text.duration(span.end_ns - span.start_ns) or "0",
            "track": track,
            "what": what if span.count == 1 or track == "host" else f"{what} and more, {span.count} calls",
            "where": where,
        }


def _label(name: str, width: float) -> str:
    """How much room the name of a span has, in a drawing that is `width` per cent of its own wide."""
    # 8 pixels a character and 6 before them, on a drawing of 290, 560 or 920 pixels: a phone, a tablet, a desk.
    pixels = 8 * len(name) + 6
    for kind, narrowest in (("label", 290), ("label mid", 560), ("label wide", 920)):
        if width * narrowest >= 100 * pixels:
            return kind
    return ""


def _span_title(span: Span, name: str, directory: str) -> str:
    words = [text.clean(name), text.duration(span.end_ns - span.start_ns) or "0 ns"]
    if span.count > 1:
        words.append(text.plural(span.count, "call"))
    if span.site.known and (span.wait or span.count == 1):
        words.append(text.place(span.site, directory))
    return ", ".join(words)


def _group_title(group: Sequence[StepSum]) -> str:
    longest = max(group, key=lambda it: it.duration_ns)
    steps = f"step {group[0].step}" if len(group) == 1 else f"steps {group[0].step} to {group[-1].step}"
    length = text.duration(longest.duration_ns) or "0 ns"
    return f"{steps}: {length}, {text.plural(longest.waits, 'wait')}, {longest.on_cpu} on the CPU"


def _ticks(length: int) -> list[dict[str, Any]]:
    """Marks at round times: as many as a narrow screen has room for."""
    rough = length / _TICKS
    power = 10 ** math.floor(math.log10(rough))
    each = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [
        {"at": round_(100 * part * each / length), "label": text.duration_short(part * each)}
        for part in range(math.floor(length / each) + 1)
    ]


def _bar(offset: int, length: int, whole: int) -> dict[str, float]:
    width = max(100 * length / whole, _NARROWEST)
    return {"at": round_(min(100 * offset / whole, 100 - _NARROWEST)), "width": round_(width)}


def round_(number: float) -> float:
    """Places of a drawing, no finer than eyes and files need."""
    return round(number, 3)
