"""The step table as every form of a report shows it: its columns, their cells, and the remarks under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from anymps._text import estimate, listed
from anymps.cost import compile_time
from anymps.findings import Story
from anymps.forecast import Forecast
from anymps.record import PHASE_NUMBERS, Phase, PhaseShare, RareWork, StepSum, StepTable
from anymps.report import _text as text
from anymps.report._predicted import ON_MAC, PHASES, mac_times, phase_words
from anymps.report.document import Block, Column, Form, Prose, Section, Table

_TABLE: Final = (
    Column("phase"),
    Column("on mps", "number"),
    Column("on CPU", "number", style="yellow"),
    Column("waits", "number", style="yellow"),
    Column("to mps", "number", left_out=4),
    Column("to CPU", "number", left_out=3),
    Column("by fallback", "number", style="yellow", left_out=1),
    Column("time", "number"),
    Column("share", "number", style="dim", left_out=2),
    Column(ON_MAC, "number"),
)
_OWN_TIMES: Final = ("time", "share")  # of the machine that the run was recorded on
_WHERE_ANY: Final = ("by fallback", ON_MAC)  # columns that are left out where they are empty
_NO_STEP: Final = "No complete step was recorded: no loop with work on mps completed a round."


def step_title(table: StepTable, *, trains: bool) -> str:
    """What the table is of."""
    if not table.first:
        return "Steps"
    return "The training step" if trains else "One round of the loop"


def step_section(story: Story, *, brief: bool = False) -> Iterator[Section]:
    """What a step does, by phase; nothing where it does nothing.

    A `brief` one leaves out phases without work, and times of a machine that is no Mac.
    """
    table = story.step_table
    if is_idle(table):
        return
    title = step_title(table, trains=story.trains)
    if not table.first:
        none = Prose((_NO_STEP,))
        yield Section("step", title, (none,), nav="Step", forms=Form.TERMINAL | Form.PAGE)
        return
    shares, of = table.typical, _caption(table)
    whole, on_mac, words = total(shares), mac_times(story.timed), phase_words(story)
    rows = [
        (words[share.phase], *_cells(share, whole.time_ns, on_mac(share.phase)))
        for share in sorted(shares, key=by_place)
    ]
    sums = [("whole step", *_cells(whole, 0, on_mac(None)))]
    sums += [("first step", *_cells(total(table.first), 0))] if table.median else []
    own = () if story.run.on_mac or not brief else _OWN_TIMES
    kept = [
        at
        for at, column in enumerate(_TABLE)
        if column.name not in own and (column.name not in _WHERE_ANY or any(row[at] for row in rows))
    ]
    if brief:
        rows = [row for row in rows if any(row[at] for at in kept[1:])]
    title_of = f"{of[0].upper()}{of[1:]}: operators, waits, bytes and wall clock by phase"
    whole_table = Table("step-table", _TABLE, tuple(rows), caption=title_of, sums=tuple(sums))
    blocks: list[Block] = [whole_table.of_columns(kept)]
    if told := _remarks(table, story.timed, story.step_sums):
        blocks.append(Prose(tuple(told), look="quiet", joined=True))
    yield Section("step", title, tuple(blocks), nav="Step", remark=of)


def is_idle(table: StepTable) -> bool:
    """Whether no step did anything on mps, nor on the CPU in its place: there is nothing to show of it."""
    shares = (*table.first, *table.typical)
    return bool(table.first) and not any(share.on_mps or share.on_cpu or share.waits for share in shares)


def _caption(table: StepTable) -> str:
    """Which steps the table is of."""
    if table.median:
        return f"median of {text.plural(table.averaged, 'step')}, without the first"
    return "the only complete step, with all that came before it"


def _cells(share: PhaseShare, whole_ns: float, on_mac: str = "") -> list[str]:
    """The cells of one row, behind its name; the share is of `whole_ns`, empty if that is 0."""
    return [
        text.count(share.on_mps),
        text.count(share.on_cpu),
        text.count(share.waits),
        text.size(share.bytes_to_mps),
        text.size(share.bytes_to_cpu),
        text.size(share.fallback_bytes),
        text.duration(share.time_ns),
        text.percent(share.time_ns, whole_ns),
        on_mac,
    ]


def by_place(share: PhaseShare) -> int:
    """Sorts phases in the order in which a step goes through them."""
    return PHASES.index(share.phase)


def total(shares: Sequence[PhaseShare]) -> PhaseShare:
    """All phases added up."""
    return PhaseShare(Phase.OTHER, *(sum(getattr(share, field) for share in shares) for field in PHASE_NUMBERS))


def _remarks(table: StepTable, found: Forecast | None, steps: Sequence[StepSum]) -> list[str]:
    """What the numbers of the table do not say by themselves."""
    whole = total(table.typical)
    sentences = []
    if found is not None:
        sentences.append(
            f"{ON_MAC[0].upper()}{ON_MAC[1:]}: what a phase adds to the predicted step of an {found.mac.name}."
        )
        if graphs := found.time.graphs:
            compiled = f"compiles {text.count(graphs)} graphs" if graphs > 1 else "compiles a graph"
            about, span = estimate(*compile_time(graphs, found.mac))
            sentences.append(
                f"The first step there also {compiled}, about {about} ({span}). These times leave that out."
            )
    if whole.views:
        sentences.append(f"{text.count(whole.views)} of the operators on mps only view other memory: no kernel runs.")
    changes = [2 * step.on_cpu for step in steps]
    if any(changes):
        sentences.append(f"Each fallback switches from the GPU to the CPU and back: {_spread(changes)} a step.")
    if table.rare is not None:
        sentences.append(_more(table.rare, table.averaged))
    return sentences


def _more(rare: RareWork, steps: int) -> str:
    """`Every 50 steps, a step does more: up to 31 operators on mps and 2 waits beyond these numbers.`"""
    parts = [
        text.plural(rare.on_mps, "operator") + " on mps" if rare.on_mps else "",
        text.plural(rare.on_cpu, "operator") + " on the CPU" if rare.on_cpu else "",
        text.plural(rare.waits, "wait") if rare.waits else "",
    ]
    what = listed([part for part in parts if part])
    if rare.steps == 1:
        return f"One of the {steps:,} steps does more: {what} beyond these numbers."
    when = f"Every {rare.every:,} steps, a step does" if rare.every > 1 else f"{rare.steps:,} of {steps:,} steps do"
    return f"{when} more: up to {what} beyond these numbers."


def _spread(changes: Sequence[int]) -> str:
    low, high = min(changes), max(changes)
    return f"{high} switches" if low == high else f"{low} to {high} switches"
