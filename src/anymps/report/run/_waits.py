"""The waits of a run in all formats: those that cost time, with their queue, then those that are fine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anymps._text import percent
from anymps.findings import Finding, Story, WaitPlace
from anymps.record import Site, Wait, WaitQueue
from anymps.report import _text as text
from anymps.report._predicted import standing_seconds
from anymps.report.document import Block, Column, Prose, Section, Table

_FIRST: Final = (Column("where", "path"), Column("waits for", wraps=True), Column("a step", "number", left_out=4))
_HERE: Final = (
    *_FIRST,
    Column("operators", "number", left_out=3),
    Column("host", "number", left_out=1),
    Column("work", "number", left_out=2),
    Column("cost a step", "number"),
)
_OWN_TIMES: Final = ("host", "work")
_ON_MAC: Final = (
    *_FIRST,
    Column("operators", "number", left_out=3),
    Column("host idle", "number", left_out=5),
    Column("cost a step", "number"),
)
_BELONGING: Final = (*_FIRST[:2], Column("times", "number"), Column("why", wraps=True))
MOST_BELONGING: Final = 8
_FOR_COPIES: Final = (
    " Data that fits can stay on mps. `non_blocking=True` spares the wait if the script keeps the CPU tensor unchanged "
    "until the next wait (MPS701, MPS702)."
)
_SHARE: Final = 0.1
"""The part of a step from which on waits are not called fine."""


def waits_section(story: Story, findings: Sequence[Finding] = (), *, brief: bool = False) -> Iterator[Section]:
    """The waits that hurt with their queue, then those that belong; nothing if there was none.

    A `brief` one has no times of a machine that is no Mac.
    """
    places = story.waits
    if not places:
        return
    directory = story.run.directory
    hurting = [place for place in places if place.hurts]
    others = [(place, _findings_about(place, findings)) for place in places if not place.hurts]
    avoidable = [(place, ids) for place, ids in others if ids]
    belonging = [place for place, ids in others if not ids]
    costly = _costly(story, belonging)
    belonging = [place for place in belonging if place not in costly]
    on_mac = standing_seconds(story.timed) if not story.run.on_mac else {}
    remarks = (
        *_avoidable(avoidable, directory),
        *_told_costly(costly, directory),
        *_remarks(story, hurting, predicted=bool(on_mac), brief=brief),
    )
    blocks: list[Block] = []
    if hurting:
        rows = tuple(_hurting(place, directory, on_mac) for place in hurting)
        table = hurting_table(rows, on_mac=bool(on_mac))
        shown = [at for at, name in enumerate(table.names) if not brief or name not in _OWN_TIMES]
        blocks.append(table if on_mac or story.run.on_mac else table.of_columns(shown))
    if remarks:
        blocks.append(Prose(remarks, look="quiet"))
    if belonging:
        rows = tuple(_belonging(place, directory) for place in belonging[:MOST_BELONGING])
        left = len(belonging) - MOST_BELONGING
        rest = f"{text.plural(left, 'more place')}." if left > 0 else ""
        blocks.append(belonging_table(rows, rest, intro="Fine as they are:" if remarks else ""))
    remark = f"{text.plural(len(hurting), 'line')} in the steps" if hurting else ""
    remark = remark or ("" if remarks else "all fine as they are")
    yield Section("waits", "Where the host waits", tuple(blocks), "Waits", "Waits", remark)


def hurting_table(rows: tuple[tuple[str, ...], ...], *, on_mac: bool) -> Table:
    """Those that hurt: with the time that the host is idle where that is predicted for the Mac."""
    caption = "In the steps, and the operators since the wait before each"
    return Table("waits-hurting", _ON_MAC if on_mac else _HERE, rows, caption=caption)


def belonging_table(rows: tuple[tuple[str, ...], ...], rest: str = "", intro: str = "") -> Table:
    """Those that are fine as they are."""
    caption = "Waits that are fine as they are"
    return Table("waits-belonging", _BELONGING, rows, caption=caption, intro=intro, rest=rest, headed=False)


def _findings_about(place: WaitPlace, findings: Sequence[Finding]) -> list[str]:
    """The findings that say of waits in no training step's routine that they need not be."""
    moves = _moves(place)
    at = place.site.file_line
    told = (finding for finding in findings if (finding.rule.about_copies if moves else finding.rule.about_loops))
    return [finding.id for finding in told if at in [site.file_line for site in _lines(finding)]]


def _moves(place: WaitPlace) -> bool:
    """Whether nothing waits there but copies to the device."""
    return place.kinds == (Wait.COPY_TO_MPS,)


def _lines(finding: Finding) -> Sequence[Site]:
    return (finding.site, *finding.related_sites) if finding.related_as == "also at" else (finding.site,)


def _avoidable(places: Sequence[tuple[WaitPlace, Sequence[str]]], directory: str) -> list[str]:
    remarks = []
    for which, moving in (("Copies to the device", True), ("Loops without a training step", False)):
        told = [
            f"{text.place(place.site, directory)} ({', '.join(ids)})"
            for place, ids in places
            if _moves(place) is moving
        ]
        if told:
            remarks.append(f"{which} wait too; the findings say how to avoid that: {', '.join(told)}.")
    return remarks


def _costly(story: Story, places: Sequence[WaitPlace]) -> dict[WaitPlace, float]:
    """The waits that no finding is about and that yet take a good part of the predicted step, each with its part."""
    step = story.timed
    if step is None:
        return {}
    seconds = {
        place: sum(
            wait.seconds
            for wait in step.waits
            if (wait.place.file, wait.place.line) == place.site.file_line and wait.place.wait in place.kinds
        )
        for place in places
    }
    parts = {place: taken / step.time.seconds for place, taken in seconds.items() if taken}
    return parts if sum(parts.values()) >= _SHARE else {}


def _told_costly(parts: Mapping[WaitPlace, float], directory: str) -> list[str]:
    if not parts:
        return []
    lines = [f"{text.place(place.site, directory)} ({_kinds(place)}, {place.reason})" for place in parts]
    this, them = ("This wait takes", "it") if len(lines) == 1 else ("These waits take", "them")
    more = _FOR_COPIES if all(map(_moves, parts)) else " Nothing else helps that anymps knows."
    return [
        f"{this} about {percent(sum(parts.values()))} of a predicted step, and no finding is about that: "
        f"{'; '.join(lines)}. A larger batch makes {them} rarer.{more}"
    ]


def waits_without_findings(story: Story, findings: Sequence[Finding]) -> str:
    """Which waits take a good part of the predicted step though no finding is about them, and what would help."""
    others = [place for place in story.waits if not place.hurts and not _findings_about(place, findings)]
    return " ".join(_told_costly(_costly(story, others), story.run.directory))


def _operators(queue: WaitQueue) -> str:
    """`202`, `0 to 302`: median and most operators since the wait before; `?` where they are not known."""
    if not queue.measured:
        return "?"
    if queue.operators == queue.most_operators:
        return f"{queue.operators:,}"
    return f"{queue.operators:,} to {queue.most_operators:,}"


def _hurting(place: WaitPlace, directory: str, on_mac: Mapping[tuple[str, int], float]) -> tuple[str, ...]:
    queue = place.longest
    if on_mac:
        # A wait that the typical step does not have is in none of its times.
        times = [text.duration(1e9 * on_mac.get(place.site.file_line, 0.0))]
    else:
        times = [text.duration(time) if queue.measured else "?" for time in (queue.host_ns, queue.work_ns)]
    return (
        text.place(place.site, directory),
        _kinds(place),
        text.count(place.per_step),
        _operators(queue),
        *times,
        text.duration_range(*place.cost_per_step_ns),
    )


def _belonging(place: WaitPlace, directory: str) -> tuple[str, ...]:
    return (text.place(place.site, directory), _kinds(place), text.count(place.count), place.reason)


def _kinds(place: WaitPlace) -> str:
    return ", ".join(dict.fromkeys(kind.label for kind in place.kinds))


def _remarks(story: Story, hurting: Sequence[WaitPlace], *, predicted: bool, brief: bool) -> list[str]:
    if not hurting:
        return []
    meaning = "Operators: those on mps since the previous wait, median to maximum."
    if predicted:
        meaning += (
            " Host idle: how long the host would wait there in a step on the Mac. Without the wait the GPU still has "
            "that work to do, so a step saves less."
        )
    elif story.run.on_mac:
        meaning += " Host and work: the host's time between and inside the calls of these operators."
    elif not brief:
        meaning += (
            " Host: this machine's time between them, in which the host prepares them; work: the time inside them. "
            "On a Mac the GPU works meanwhile, at its own speed, and the wait lasts until it is done."
        )
    return [meaning]
