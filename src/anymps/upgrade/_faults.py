"""Known bugs and slow paths that recorded calls meet: which releases of torch, versions of macOS and GPUs have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from anymps.findings import faults_met
from anymps.record import Recording, Signature, Site
from anymps.rules.faults import SIZE, Effect, Hazard, all_hazards, sources_of
from anymps.upgrade._calls import base, elements
from anymps.upgrade._subjects import FINE, Answer, Outcome, Release, Subject

_OUTCOMES: Final = {
    Effect.SLOW: Outcome.SLOWER,
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

_BY_SIZE: Final = tuple(row for row in all_hazards() if row.check == SIZE)


def faults(recording: Recording, gpu: str) -> Iterator[Subject]:
    """The known bugs that the recorded calls meet by line, and those that were not looked for.

    `gpu` is the Metal family of the Mac (`apple9`).
    """
    met: dict[tuple[str, str, tuple[str, int]], tuple[Site, dict[Hazard, None]]] = {}
    for found, operator, where in faults_met(recording):
        if rows := [row for row in found if _is_of(row, gpu)]:
            key = rows[0].id, operator, where.site.file_line
            met.setdefault(key, (where.site, {}))[1].update(dict.fromkeys(rows))
    for signature, site in recording.distinct_calls():
        for row in met_by_size(signature):
            if _is_of(row, gpu):
                met.setdefault((row.id, signature.operator, site.file_line), (site, {}))[1][row] = None
    for (_, operator, _), (site, known) in met.items():
        yield _subject(site, operator, tuple(known))
    called = {base(signature.operator) for signature, _ in recording.distinct_calls()}
    unnoted = [row for row in all_hazards() if row.id not in recording.run.faults and _is_of(row, gpu)]
    if unnoted := [row for row in unnoted if not called.isdisjoint(row.operators)]:
        yield Subject(Site("", 0), "", answers=partial(_unnoted, unnoted))


def met_by_size(signature: Signature) -> list[Hazard]:
    """The rows that a call meets by the size of its first tensor, which no mark tells of."""
    operator, number = base(signature.operator), elements(signature)
    return [row for row in _BY_SIZE if operator in row.operators and number > row.low]


def answer_of(rows: Sequence[Hazard], torch: Release, macos: Release) -> Answer:
    """What becomes of calls that meet a bug. Between the last release that is known to have it and the fix: unknown.

    A slow path that nobody has timed there counts as none.
    """
    on_mac = [row for row in rows if not row.macos or any(first <= macos < after for first, after in row.macos)]
    having = [row for row in on_mac if row.has(torch)]
    if having:
        worst = max(having, key=lambda row: _OUTCOMES[row.effect])
        return Answer(_OUTCOMES[worst.effect], worst.title, worst.factor)
    if any(row.has(torch) is None and not row.is_slow for row in on_mac):
        return Answer(Outcome.UNKNOWN, f"whether it has this bug is not known: {rows[0].title}")
    return FINE


def _unnoted(rows: Sequence[Hazard], torch: Release, macos: Release) -> Answer:
    """Of bugs for which the recorded calls were not looked at."""
    if all(answer_of([row], torch, macos) is FINE for row in rows):
        return FINE
    return Answer(Outcome.UNKNOWN, "an older anymps made the recording, which does not look for all known bugs")


def _subject(site: Site, operator: str, rows: Sequence[Hazard]) -> Subject:
    first = rows[0]
    source = "; ".join([*sources_of(rows), *dict.fromkeys(row.where for row in rows)])
    answers = partial(answer_of, rows)
    return Subject(site, operator, fault=first.id, title=first.title, source=source, answers=answers)


def _is_of(row: Hazard, gpu: str) -> bool:
    return not row.metal_families or gpu in row.metal_families
