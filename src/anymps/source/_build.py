"""Makes an edit at one place, and checks the new code before it is accepted.

It parses, its names are bound there or come with it, and `**options` does not hold what it gives by name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from anymps.source._calls import rewritten
from anymps.source._code import Code, Splice, spliced
from anymps.source._edits import CallEdit, Edit, Guard, Insert, Rewritten
from anymps.source._names import BUILTINS
from anymps.source._nodes import names_in
from anymps.source._place import Place

_DEVICE_NAME = re.compile(r'"(mps|cuda|cpu)"')


@dataclass(frozen=True)
class Built:
    """An edit at a place: what becomes of its code, of which `old` becomes `new`, `start` characters from its start."""

    code: str
    start: int
    old: str
    new: str
    inserts: tuple[Insert, ...]


def build(edit: Edit, place: Place) -> Built | None:
    """What an edit makes of a place; None where it has nothing to change, or not without breaking something."""
    if isinstance(edit, Guard):
        return None
    if isinstance(edit, CallEdit):
        found = rewritten(edit, place.code)
        return None if found is None else _checked(place, found[1], place.code.span(found[0]))
    changed = edit.rewrite(place)
    return None if changed is None else _checked(place, changed, changed.shown or (0, len(place.code.text)))


def fits(new: str, place: Place, known: Iterable[str] = ()) -> bool:
    """Whether a line of code may be shown beside a place: it parses, and `known` names and those of the place do."""
    code = Code.of(new)
    return code is not None and code.names <= place.code.names | BUILTINS | place.names.bound | set(known)


def _checked(place: Place, changed: Rewritten, region: tuple[int, int]) -> Built | None:
    splices = [_in_quotes_of(place.code.text, splice) for splice in changed.splices]
    text = place.code.spliced(splices)
    new = Code.of(text)
    if new is None or text == place.code.text or new.is_head != place.code.is_head:
        return None
    inserted = {insert.name for insert in changed.inserts}
    needed = {name for insert in changed.inserts for name in names_in(ast.parse(insert.code))} - inserted
    bound = place.names.bound | place.code.names | BUILTINS
    if not new.names <= bound | inserted or not needed <= bound | ({place.names.torch} - {""}):
        return None
    start, end = region
    own = [Splice(splice.start - start, splice.end - start, splice.text) for splice in splices]
    part = place.code.text[start:end]
    return Built(text, start, part, spliced(part, own), changed.inserts)


def _in_quotes_of(code: str, splice: Splice) -> Splice:
    """A splice with the names of devices in single quotes where the code has no others."""
    if "'" not in code or '"' in code:
        return splice
    return splice._replace(text=_DEVICE_NAME.sub(r"'\1'", splice.text))
