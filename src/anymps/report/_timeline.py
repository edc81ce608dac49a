"""The timeline of the typical step on this machine: its calls, and how far the queue would reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from anymps._text import step_name
from anymps.findings import Story
from anymps.record import Span, StepQueues, StepTimeline
from anymps.report import _text as text
from anymps.report._lanes import calls_words, drawing, lane, round_, row, span
from anymps.report._timeline_on_mac import timeline_on_mac

_MOST_RAMPS: Final = 500


def timeline_drawing(story: Story) -> dict[str, Any] | None:
    """The typical step on its tracks; None if there is no complete step.

    Of a virtual device in the time of the Mac that it plays where that is predicted, else in that of this machine.
    """
    line, queues = story.timeline, story.queues
    if line is None or queues is None or line.step.end_ns is None or line.step.end_ns <= line.step.start_ns:
        return None
    if story.timed is not None and not story.run.on_mac:
        return timeline_on_mac(story, story.timed)
    start, length, directory = line.step.start_ns, line.step.end_ns - line.step.start_ns, story.run.directory
    hurting = story.in_typical(place for place in story.waits if place.hurts)
    caption = (
        "Times are this machine's: the device works inside each call. On a Mac its work is queued, and each wait lasts "
        "until the queue is empty."
        if not story.run.on_mac
        else "Times of the host."
    )
    return drawing(
        _lanes(line, queues, start, length, directory),
        length,
        _sentence(line, hurting, length),
        f"{caption} Calls closer than a thousandth of the step are drawn as one.",
        list(_rows(line, start, directory)),
    )


def _sentence(line: StepTimeline, hurting: int, length: int) -> str:
    """How long the step is, and how often it waits and leaves the device."""
    waits = sum(wait.count for wait in line.waits)
    on_cpu = sum(fallback.count for fallback in line.on_cpu)
    which = step_name(line.step.step).capitalize()
    sentence = f"{which}, {text.duration(length)} long: a typical step. {text.plural(waits, 'wait')}"
    if hurting:
        hurt = "hurts" if hurting == 1 else "hurt"
        sentence += f" that {hurt}" if hurting == waits else f" ({hurting:,} that {hurt})"
    return sentence + (f", {text.plural(on_cpu, 'operator call')} on the CPU." if on_cpu else ".")


def _lanes(
    line: StepTimeline, queues: StepQueues, start: int, length: int, directory: str
) -> tuple[dict[str, Any], ...]:
    def spans(of: Sequence[Span], name: Callable[[Span], str], look: Callable[[Span], str]) -> list[dict[str, Any]]:
        return [
            span(
                part.start_ns - start,
                part.end_ns - part.start_ns,
                length,
                name(part),
                look(part),
                *calls_words(part.count),
                *_where(part, directory),
            )
            for part in of
        ]

    longest = max((wait.operators for wait in queues.waits), default=0)
    ramps = _queue(queues, directory)
    return (
        lane(
            "parts",
            "host: phases of the step",
            spans(line.phases, lambda part: part.phase.label, lambda part: f"phase p{int(part.phase)}"),
        ),
        lane("bars", "device: MPS kernels", spans(line.on_mps, lambda _: "MPS kernels", lambda _: "mps")),
        lane(
            "bars",
            f"CPU: operators that fell back{'' if line.on_cpu else ' (none)'}",
            spans(line.on_cpu, lambda fallback: fallback.operator, lambda _: "fallback"),
        ),
        lane("queue", f"queue: operators since the last wait{f', at most {longest:,}' if ramps else ' (none)'}", ramps),
        lane(
            "waits",
            f"host waits for the device{'' if line.waits else ' (never)'}",
            spans(line.waits, lambda wait: wait.wait.label, lambda _: "wait"),
        ),
    )


def _queue(queues: StepQueues, directory: str) -> list[dict[str, str]]:
    """A ramp for each wait, from the wait before it, as high as its queue; the longest where there are very many."""
    start, length = queues.step.start_ns, (queues.step.end_ns or 0) - queues.step.start_ns
    filled = [wait for wait in queues.waits if wait.operators]
    longest = sorted(filled, key=lambda wait: -wait.operators)[:_MOST_RAMPS]
    ramps = []
    for wait in sorted(longest, key=lambda queued: queued.start_ns):
        since, until = (round_(min(1000 * (time - start) / length, 1000)) for time in (wait.queued_ns, wait.start_ns))
        top = round_(24 - 23 * wait.operators / longest[0].operators)
        title = (
            f"{text.plural(wait.operators, 'operator')} queued since the wait before: "
            f"{text.duration(wait.host_ns) or '0'} of the host, {text.duration(wait.work_ns) or '0'} of work, then "
            f"{wait.wait.label} at {text.place(wait.site, directory)}"
        )
        ramps.append({"path": f"M{since} 24L{until} {top}V24Z", "title": title})
    return ramps


def _rows(line: StepTimeline, start: int, directory: str) -> Iterator[dict[str, str]]:
    """Phases, fallbacks and waits in the order of time."""
    rows = [
        *((part, "host", part.phase.label, "") for part in line.phases),
        *(
            (fallback, "CPU", text.clean(fallback.operator), text.place(fallback.site, directory))
            for fallback in line.on_cpu
        ),
        *((wait, "wait", wait.wait.label, text.place(wait.site, directory)) for wait in line.waits),
    ]
    for timed, track, what, where in sorted(rows, key=lambda entry: entry[0].start_ns):
        calls = 1 if track == "host" else timed.count
        yield row(timed.start_ns - start, timed.end_ns - timed.start_ns, track, what, where, calls)


def _where(timed: Span, directory: str) -> list[str]:
    """The line of a span; of several calls at once, which may have several, only that of waits."""
    return [text.place(timed.site, directory)] if timed.site.known and (timed.wait or timed.count == 1) else []
