"""What changed between two recordings: findings, the training step, where operators run, memory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from anymps.findings import Finding, Story
from anymps.record import Fate, Phase, PhaseShare
from anymps.report._objects import Key, key
from anymps.report._predicted import mac_seconds
from anymps.report._step import by_place, step_title, total
from anymps.report._text import path

_ON_CPU = (Fate.FALLBACK, Fate.ALWAYS_FALLBACK)


def script_of(story: Story) -> str:
    """The script from the directory of the run; empty where it is not known."""
    run = story.run
    return path(os.path.normpath(os.path.join(run.directory, run.script)) if run.script else "", run.directory)


FindingPair = tuple[Finding, Finding]
"""A finding as it is in both recordings."""


@dataclass(frozen=True)
class PhaseChange:
    """One phase of the step in both recordings; the whole step if `phase` is None."""

    phase: Phase | None
    before: PhaseShare
    after: PhaseShare
    on_mac: tuple[float, float] | None = None
    """Predicted seconds on the Macs of both recordings; None unless both have a time."""


@dataclass(frozen=True)
class Diff:
    """Two recordings side by side. The tuples hold what differs; `phases` is empty unless both have a complete step.

    `step_title` is what these are phases of: a training's step, a round of an inference, or one of each.

    `now_on_cpu`: operators that fell back to the CPU only in the second. `now_native`: those that fell back only in the
    first and run in MPS kernels in the second. `no_longer_called`: those that fell back in the first and are not in the
    second at all. `memory_peaks`: the highest bytes held by tensors in each, None where none were recorded.
    """

    before: Story
    after: Story
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]
    changed: tuple[FindingPair, ...]
    same: int
    step_title: str
    phases: tuple[PhaseChange, ...]
    now_on_cpu: tuple[str, ...]
    now_native: tuple[str, ...]
    no_longer_called: tuple[str, ...]
    memory_peaks: tuple[int | None, int | None]

    @property
    def other_script(self) -> bool:
        """Whether the two are of scripts with different names, such as `train.py` and `train_fixed.py`."""
        return _other_script(self.before, self.after)


def compare(before: Story, after: Story, was: Sequence[Finding], now: Sequence[Finding]) -> Diff:
    """Compare two runs with their findings.

    Findings are the same if rule, file, function, text of the line and operator are; line numbers may differ, and of
    scripts with different names the files, too. Numbers are compared for one step where both runs have steps, so that a
    longer run does not look like a worse one.
    """
    gone, new, pairs = _pair(was, now, before, after)
    cpu_before, _ = _operators(before)
    cpu_after, native_after = _operators(after)
    left = cpu_before - cpu_after
    return Diff(
        before=before,
        after=after,
        gone=gone,
        new=new,
        changed=tuple(pair for pair in pairs if _differs(pair)),
        same=sum(not _differs(pair) for pair in pairs),
        step_title=_step_title(before, after),
        phases=_phases(before, after),
        now_on_cpu=tuple(sorted(cpu_after - cpu_before)),
        now_native=tuple(sorted(left & native_after)),
        no_longer_called=tuple(sorted(left - native_after)),
        memory_peaks=(_peak(before), _peak(after)),
    )


def _pair(
    was: Sequence[Finding], now: Sequence[Finding], before: Story, after: Story
) -> tuple[tuple[Finding, ...], tuple[Finding, ...], list[FindingPair]]:
    """What is only in the first, what is only in the second, and what is in both; equal ones in their order.

    Findings are told from the directories of the runs. Of other scripts, those that are left are then told without
    their files, if the text of their line is known.
    """
    told_from: list[tuple[str | None, str | None]] = [(before.run.directory, after.run.directory)]
    told_from += [(None, None)] if _other_script(before, after) else []
    partners: dict[int, Finding] = {}
    for first, second in told_from:
        taken = set(map(id, partners.values()))
        waiting: dict[Key, list[Finding]] = defaultdict(list)
        for old in was:
            if id(old) not in taken and (first is not None or old.site.source.strip()):
                waiting[key(old, first)].append(old)
        for new in now:
            if id(new) not in partners and (same := waiting[key(new, second)]):
                partners[id(new)] = same.pop(0)
    taken = set(map(id, partners.values()))
    gone = tuple(old for old in was if id(old) not in taken)
    added = tuple(new for new in now if id(new) not in partners)
    return gone, added, [(partners[id(new)], new) for new in now if id(new) in partners]


def _other_script(before: Story, after: Story) -> bool:
    names = script_of(before), script_of(after)
    return all(names) and names[0] != names[1]


def _differs(pair: FindingPair) -> bool:
    before, after = pair
    if before.severity is not after.severity:
        return True
    if before.per_step and after.per_step:
        return round(before.per_step, 1) != round(after.per_step, 1)
    return before.count != after.count


def _step_title(before: Story, after: Story) -> str:
    # A recording without a step has no say in what the steps are.
    titles = {step_title(story.step_table, trains=story.trains) for story in (before, after) if story.complete_steps}
    titles = titles or {step_title(after.step_table, trains=after.trains)}
    return titles.pop() if len(titles) == 1 else "A step, or a round of the loop"


def _phases(before: Story, after: Story) -> tuple[PhaseChange, ...]:
    first, second = (table.typical for table in (before.step_table, after.step_table))
    if not first or not second:
        return ()
    was, now = mac_seconds(before.timed), mac_seconds(after.timed)
    known = bool(was and now)
    rows = [
        PhaseChange(old.phase, old, new, (was[old.phase], now[old.phase]) if known else None)
        for old, new in zip(sorted(first, key=by_place), sorted(second, key=by_place), strict=True)
    ]
    sums = (sum(was.values()), sum(now.values()))
    return (*rows, PhaseChange(None, total(first), total(second), sums if known else None))


def _operators(story: Story) -> tuple[set[str], set[str]]:
    """The operators that ran on the CPU, and those that ran in MPS kernels."""
    uses = story.operators
    return {use.name for use in uses if use.fate in _ON_CPU}, {use.name for use in uses if use.fate is Fate.NATIVE}


def _peak(story: Story) -> int | None:
    return max((sample.allocated_bytes for sample in story.memory_samples), default=None)
