"""What MPS refused, as the file holds it."""

from __future__ import annotations

from collections.abc import Callable

from anymps._vocabulary import RefusalKind
from anymps.record._facts import Refusal, Site
from anymps.record._rows import Rows
from anymps.record._sums import Word


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
