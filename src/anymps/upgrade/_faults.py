"""Known bugs that recorded calls meet: which releases of torch, versions of macOS and GPUs have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from anymps.findings import faults_met
from anymps.record import Recording, Site
from anymps.rules import OLDEST
from anymps.rules.faults import Effect, Hazard, all_hazards
from anymps.upgrade._calls import base
from anymps.upgrade._subjects import FINE, Answer, Outcome, Release, Subject

_OUTCOMES: Final = {
    Effect.WRONG: Outcome.WRONG,
    Effect.MAY_BE_WRONG: Outcome.DOUBTFUL,
    Effect.VARIES: Outcome.DOUBTFUL,
    Effect.OPEN: Outcome.DOUBTFUL,
    Effect.ABORTS: Outcome.REFUSED,
    Effect.MAY_ABORT: Outcome.DOUBTFUL,
    Effect.HANGS: Outcome.REFUSED,
    Effect.MAY_HANG: Outcome.DOUBTFUL,
    Effect.RAISES: Outcome.REFUSED,
}


def faults(recording: Recording, gpu: str) -> Iterator[Subject]:
    """The known bugs that the recorded calls meet by line, and those that were not looked for.

    `gpu` is the Metal family of the Mac (`apple9`).
    """
    seen: set[tuple[object, ...]] = set()
    for identity, operator, met in faults_met(recording):
        rows = [row for row in all_hazards() if row.id == identity and _concerns(row, operator) and _is_of(row, gpu)]
        key = (identity, operator, met.site.file_line)
        if rows and key not in seen:
            seen.add(key)
            yield _subject(met.site, operator, rows, partial(answer_of, rows))
    called = {base(signature.operator) for signature, _ in recording.distinct_calls()}
    unnoted = [row for row in all_hazards() if row.id not in recording.run.faults and _is_of(row, gpu)]
    if unnoted := [row for row in unnoted if not called.isdisjoint(row.operators)]:
        yield Subject(Site("", 0), "", answers=partial(_unnoted, unnoted))


def answer_of(rows: Sequence[Hazard], torch: Release, macos: Release) -> Answer:
    """What becomes of calls that meet a bug. Between the last release that is known to have it and the fix: unknown."""
    on_mac = [row for row in rows if not row.macos or any(first <= macos < after for first, after in row.macos)]
    for row in on_mac:
        if row.since <= torch <= row.until:
            return Answer(_OUTCOMES[row.effect], row.title)
    if any(_is_open(row, torch) for row in on_mac):
        return Answer(Outcome.UNKNOWN, f"whether it has this bug is not known: {rows[0].title}")
    return FINE


def _is_open(row: Hazard, torch: Release) -> bool:
    """Whether nobody knows of a release outside of the row's: later ones before a fix, and those before the oldest."""
    if torch > row.until:
        return row.fixed is None or torch < row.fixed
    return torch < row.since == OLDEST


def _unnoted(rows: Sequence[Hazard], torch: Release, macos: Release) -> Answer:
    """Of bugs for which the recorded calls were not looked at."""
    if all(answer_of([row], torch, macos) is FINE for row in rows):
        return FINE
    return Answer(Outcome.UNKNOWN, "an older anymps made the recording, which does not look for all known bugs")


def _subject(site: Site, operator: str, rows: Sequence[Hazard], answers: partial[Answer]) -> Subject:
    first = rows[0]
    issues = ", ".join(f"#{number}" for number in first.issues)
    source = "; ".join([*([f"pytorch issue {issues}"] if issues else []), first.source, *(row.where for row in rows)])
    return Subject(site, operator, fault=first.id, title=first.title, source=source, answers=answers)


def _concerns(row: Hazard, operator: str) -> bool:
    return not row.operators or base(operator) in row.operators


def _is_of(row: Hazard, gpu: str) -> bool:
    return not row.metal_families or gpu in row.metal_families
