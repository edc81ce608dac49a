"""What is noted of entries: marks with facts about a line, non_blocking copies touched too early, refused calls."""

from __future__ import annotations

from collections.abc import Callable

from anymps._vocabulary import Flag, RefusalKind
from anymps.record._facts import Noted, Occurrence, Refusal, Site, UnsafeCopy
from anymps.record._rows import Rows
from anymps.record._sums import Word
from anymps.record.format import Picked


def read_noted(
    rows: Rows,
    occurrences: Callable[[Picked], tuple[Occurrence, ...]],
    facts: Callable[[str], dict[str, object]],
    site: Callable[[int], Site],
    what: str,
) -> tuple[Noted, ...]:
    """Marks `anymps::<what> {"fact": value}`, in the order of the run; `occurrences` answers conditions."""
    quoted = what.replace("'", "''")
    named = f"substr(o.name, 1, {len(what) + 9}) = 'anymps::{quoted} '"
    if not rows(f"SELECT 1 FROM operators o WHERE {named} LIMIT 1"):
        return ()
    others = rows(
        "SELECT e.sequence FROM entries e JOIN signatures s ON s.id = e.signature JOIN operators o "
        f"ON o.id = s.operator WHERE e.flags & {Flag.PAIR:d} AND {named} GROUP BY 1 ORDER BY MIN(e.id)"
    )
    return tuple(
        Noted(occurrence, facts(occurrence.operator.partition(" ")[2]), site(other))
        for (other,) in others
        for occurrence in occurrences(Picked(named, f"e.flags & {Flag.PAIR:d} AND e.sequence = {other:d}"))
    )


def read_unsafe_copies(rows: Rows, site: Callable[[int], Site]) -> tuple[UnsafeCopy, ...]:
    """Non_blocking copies whose host side was touched before a wait, in the order of the run."""
    if not rows("SELECT 1 FROM operators WHERE substr(name, 1, 13) = 'anymps::copy.' LIMIT 1"):
        return ()
    found = []
    for mark, touched, copy, wait, count in rows(
        "SELECT o.name, e.site, e.sequence & 4294967295, e.sequence >> 32, COUNT(*) FROM entries e "
        "JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator "
        f"WHERE e.flags & {Flag.UNSAFE_COPY:d} GROUP BY o.name, e.site, e.sequence ORDER BY MIN(e.id)"
    ):
        kind, _, operator = str(mark).removeprefix("anymps::copy.").partition(" ")
        found.append(UnsafeCopy(kind, operator, site(touched), site(copy), site(wait), count))
    return tuple(found)


def read_refusals(
    rows: Rows, word: Word, facts: Callable[[str], dict[str, object]], site: Callable[[int], Site]
) -> tuple[Refusal, ...]:
    """Every refused call, in the order of the run; `facts` reads a detail, a JSON object."""
    found = rows(
        "SELECT r.kind, r.error, r.message, COALESCE(o.name, ''), r.detail, r.site, r.origin FROM refusals r "
        "LEFT JOIN entries e ON e.id = r.entry LEFT JOIN signatures s ON s.id = e.signature "
        "LEFT JOIN operators o ON o.id = s.operator ORDER BY r.id"
    )
    result = []
    for kind, error, message, operator, text, at, origin in found:
        detail = facts(text)
        result.append(
            Refusal(
                kind=word(RefusalKind, kind),
                error=error,
                message=message,
                operator=str(detail.get("operator") or operator),
                site=site(at),
                origin=site(origin),
                detail=detail,
            )
        )
    return tuple(result)
