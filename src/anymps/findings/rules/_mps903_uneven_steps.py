"""MPS903: steps that take much longer than the others on the Mac of the run, and by which calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final

from anymps._text import duration, listed, percent, plural, step_name
from anymps.findings._loop import is_library
from anymps.findings._model import Example, Finding, Rule, Severity, at
from anymps.findings._prices import interval_ns, step_on_mac
from anymps.forecast import Forecast, WaitingLine, try_forecast
from anymps.record import Fate, Flag, Recording, Site, Wait

UNEVEN = Rule(
    id="MPS903",
    title="Some steps take much longer than the others",
    severity=Severity.INFO,
    about_copies=True,
    why=(
        "The times of steps swing where some do more than the others: a validation, a checkpoint, a log, or new "
        "shapes, for each of which MPSGraph compiles a graph."
    ),
    fix=(
        "Do this less often, or in fewer calls: larger batches in a validation, one copy for several tensors. Run new "
        "shapes once before the loop, or pad to a few sizes (MPS120)."
    ),
    related_as="also at",
    source="the predicted times of both kinds of steps; public logs of compiled graphs, about 2.5 ms each on an M1",
    example=Example(
        bad="""
            for step, x in enumerate(batches * 2):
                train(x)
                if step % 3 == 1:
                    rows = [model(row.to(device)) for row in torch.rand(64, 4)]
        """,
        good="""
            for x in batches * 2:
                train(x)
            rows = model(torch.rand(64, 4).to(device))
        """,
    ),
)

_LONGER: Final = 1.5  # times as long as the typical step
_SHARE: Final = 0.05  # of the time of all steps, beyond what typical steps would take
_FEW: Final = 10  # steps among which a single one that differs says little
_FEW_CALLS: Final = 10  # on mps beyond the typical step: fewer are a log, which is read now and then as advised
_MOST: Final = 3  # kinds of steps that are predicted, and causes that are named


def find_after(recording: Recording, _others: Sequence[Finding]) -> Iterator[Finding]:
    """One finding, about the kind of steps that takes most time beyond that of typical ones; none where most differ."""
    typical = step_on_mac(recording)
    if typical is None or len(recording.parts) > 1 or len(recording.lines_by_loop.steps) > 1:
        return  # other processes and loops have steps of their own
    later = recording.step_sums()[1:]
    new = _new_graphs(recording, typical)
    usual = median_low(len(new[step.step]) for step in later)
    kinds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for one in later:
        kinds[one.waits, one.on_cpu, one.on_mps].append(one.step)
    (most, alike), *others = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    compiling = [step for step in alike if len(new[step]) > usual]
    if 2 * len(alike) < len(later) or 2 * len(compiling) > len(later):
        return
    others = [kind for kind in others if kind[0][1] > most[1] or sum(kind[0]) - sum(most) >= _FEW_CALLS]
    others.sort(key=lambda kind: -len(kind[1]) * (sum(kind[0]) - sum(most)))
    found = []
    for steps in [compiling, *(steps for _, steps in others[:_MOST])]:
        # One alone with new shapes is the smaller last batch, and one of a few is no kind of steps.
        if not steps or (len(steps) == 1 and (steps is compiling or len(later) < _FEW)):
            continue
        longer = _longer(recording, typical, steps, [len(new[step]) - usual for step in steps])
        if longer is not None:
            found.append((len(steps) * longer[1], steps, *longer))
    if found:
        _, steps, step, seconds = max(found, key=lambda one: one[0])
        whole = (len(later) - len(steps)) * typical.time.seconds + len(steps) * (typical.time.seconds + seconds)
        causes = _causes(recording, typical, step, [new[one] for one in steps])
        if causes and len(steps) * seconds >= _SHARE * whole:
            yield _finding(recording, (typical, step), steps, seconds, whole, causes)


def _longer(
    recording: Recording, typical: Forecast, steps: Sequence[int], graphs: Sequence[int]
) -> tuple[Forecast, float] | None:
    """One of these steps, and by how many seconds they are longer than the typical one, compiling so many graphs."""
    wanted = steps[len(steps) // 2]
    step = try_forecast(recording, next(one for one in recording.steps() if one.step == wanted))
    if step is None:
        return None
    more = step.time.seconds - typical.time.seconds + step.compiling(sum(graphs)) / len(steps)
    return (step, more) if more >= (_LONGER - 1) * typical.time.seconds else None


def _finding(
    recording: Recording,
    both: tuple[Forecast, Forecast],
    steps: Sequence[int],
    seconds: float,
    whole: float,
    causes: Sequence[tuple[float, str, Site]],
) -> Finding:
    typical, step = both
    gaps = {after - before for before, after in pairwise(steps)}
    number = len(recording.step_sums())
    usual = 1e9 * typical.time.seconds
    which = f"{len(steps)} of {number:,} steps, such as {step_name(steps[0])}, take"
    if len(steps) == 1:
        which = f"{step_name(steps[0]).capitalize()} takes"
    elif len(gaps) == 1 and len(steps) > 2:
        which = f"Every {gaps.pop()} steps, one takes"
    named = list({site.file_line: site for _, _, site in reversed(causes)}.values())[::-1]
    sites = [site for site in named if site.known and not is_library(site)] or named
    low, high = interval_ns(step, seconds)
    return UNEVEN.finding(
        sites[0],
        what=(
            f"{which} {(usual + 1e9 * seconds) / usual:.1f} times as long on an {step.mac.name} "
            f"({duration(usual + 1e9 * seconds)} in place of {duration(usual)}): "
            f"{listed([said for _, said, _ in causes[:_MOST]])}. "
            f"That is {percent(len(steps) * seconds / whole)} of the predicted time of all steps."
        ),
        count=len(steps),
        cost_ns=(len(steps) * low, len(steps) * high),
        related_sites=sites[1:_MOST],
    )


def _causes(
    recording: Recording, typical: Forecast, step: Forecast, new: Sequence[Sequence[Site]]
) -> list[tuple[float, str, Site]]:
    """What the step does beyond the typical one, with its predicted seconds; the costliest first, operators last."""
    sites: dict[WaitingLine, Site] = {}
    beyond: Counter[WaitingLine] = Counter()
    counted = recording.stream(
        "SELECT e.step, e.site, e.wait, COUNT(*) FROM entries e JOIN signatures s ON s.id = e.signature WHERE "
        f"e.step IN ({step.step}, {typical.step}) AND s.fate <> {Fate.MARK:d} AND NOT e.flags & {Flag.PAIR:d} "
        f"AND NOT e.flags & {Flag.VIEW:d} GROUP BY 1, 2, 3"
    )
    for number, site, wait, count in counted:
        place = WaitingLine(*recording.site(site).file_line, Wait(wait))
        sites[place] = recording.site(site)
        beyond[place] += count if number == step.step else -count
    causes = [
        (
            wait.seconds,
            f"{plural(beyond[wait.place], 'wait')} ({wait.place.wait.label}){_where(sites[wait.place])}",
            sites[wait.place],
        )
        for wait in step.waits
        if beyond[wait.place] > 0
    ]
    compiled = Counter(site for sites_of_step in new for site in sites_of_step)
    if graphs := round(compiled.total() / len(new)):
        first = compiled.most_common(1)[0][0]
        told = f"{plural(graphs, 'graph')} compiled for new shapes{_where(first, 'most')}"
        causes.append((step.compiling(graphs), told, first))
    causes.sort(key=lambda cause: -cause[0])
    kernels = {place: count for place, count in beyond.items() if place.wait is Wait.NONE}
    if sum(kernels.values()) > 0:
        first = sites[max(kernels, key=kernels.__getitem__)]
        told = f"{plural(sum(kernels.values()), 'more operator')} on mps{_where(first, 'most')}"
        causes[_MOST - 1 :] = [(0.0, told, first)]
    return causes


def _where(site: Site, much: str = "") -> str:
    return f"{', ' if much else ''}{much} at {at(site)}" if site.known else ""


def _new_graphs(recording: Recording, typical: Forecast) -> dict[int, list[Site]]:
    """By step, the lines whose calls compile a graph there: with tensors that no step before had."""
    found: dict[int, list[Site]] = defaultdict(list)
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    firsts = recording.stream(
        "SELECT e.step, e.site, e.signature, MIN(e.start_ns) FROM entries e JOIN signatures s ON s.id = e.signature "
        f"WHERE s.fate = {Fate.NATIVE:d} AND NOT e.flags & {Flag.VIEW:d} GROUP BY e.signature "
        f"HAVING e.step > {recording.step_sums()[0].step}"
    )
    for step, site, signature, _ in firsts:
        call = recording.signature(signature)
        kind = call.operator, tuple(made.count(",") for made in call.outputs)
        if kind not in known:
            known[kind] = typical.graphs_of(call)  # a program may call one operator with thousands of sizes
        found[step] += [recording.site(site)] * known[kind]
    return found
